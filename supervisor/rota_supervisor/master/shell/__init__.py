"""The master's loop, its descriptors, signals and sockets, and how it is wired."""
