"""Orders that a worker confirms."""
