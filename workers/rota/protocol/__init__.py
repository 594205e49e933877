"""The protocol: the data in Redis and the ways it changes. No I/O here."""
