"""Periodic tasks: schedules, and when they are due. No I/O: every node computes the same result."""
