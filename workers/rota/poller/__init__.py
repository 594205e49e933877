"""The poller: promotes tasks when they are due, and retires owners whose lease has expired."""
