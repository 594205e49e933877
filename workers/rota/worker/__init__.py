"""The worker: claims and settles tasks in one round trip, and runs them one after another."""
