"""The poller: promotes tasks when they are due, and reaps owners whose lease has expired."""
