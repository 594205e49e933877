"""The protocol: the data in Redis, and the ways in which it changes. This package does no I/O."""
