"""The worker process, which claims and settles tasks in one round trip, and runs tasks one after another or many at
once."""
