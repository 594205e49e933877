"""The configuration: its structure, its sources (the file, the environment and flags), and its faults."""
