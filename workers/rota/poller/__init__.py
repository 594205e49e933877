"""The poller: promotes tasks that are due, and retires owners whose lease ran out."""
