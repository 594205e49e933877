"""The configuration: its shape, how it is read from file, environment and flags, and what is wrong with it."""
