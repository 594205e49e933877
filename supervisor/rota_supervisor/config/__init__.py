"""The configuration: its structure, how it is read from the file, the environment and flags, and its faults."""
