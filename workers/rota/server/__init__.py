"""Access to the Redis or Valkey server: its address, Rota's own connections to it, and their errors."""
