"""The parts of a child process: its settings, its slot of shared memory, signals, waits and the fence."""
