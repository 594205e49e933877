"""The protocol: what stands in Redis and how it changes. No I/O here."""
