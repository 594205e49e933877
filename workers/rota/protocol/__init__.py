"""The protocol: which data Rota stores in Redis, and which transitions change it. This package does no I/O."""
