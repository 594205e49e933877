"""Periodic tasks: schedules, and when their tasks are due. This package does no I/O, so that every node computes the
same result."""
