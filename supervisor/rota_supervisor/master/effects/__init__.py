"""What the master does to the world, as the core decided it."""
