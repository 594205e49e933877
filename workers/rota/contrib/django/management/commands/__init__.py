"""The management commands, each in its own module."""
