"""The parts that all child processes share: settings, the slot in shared memory, signals, waits and the fence."""
