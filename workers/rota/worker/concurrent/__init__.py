"""A worker that runs many tasks at once, in one event loop."""
