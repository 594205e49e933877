"""The poller, a process that promotes tasks when they are due, and reaps owners whose lease has expired."""
