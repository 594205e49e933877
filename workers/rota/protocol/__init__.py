"""The protocol: the data that Rota stores in Redis, and the transitions that change it. This package does no I/O."""
