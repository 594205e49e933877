"""The schedules of periodic tasks, and the computation of when these tasks are due. This package does no I/O, so that
every node computes the same result."""
