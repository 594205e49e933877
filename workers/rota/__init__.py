"""Rota: tasks over Redis or Valkey, and how late each one started."""
