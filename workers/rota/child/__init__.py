"""What a child is made of: settings, its slot of shared memory, signals, waits and the fence."""
