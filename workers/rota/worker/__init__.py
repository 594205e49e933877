"""The worker process: claims and settles tasks in one round trip, and runs them one after another or many at once."""
