"""The worker: claims tasks, one turn a round trip, and runs them one after another."""
