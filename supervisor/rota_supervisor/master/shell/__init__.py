"""The master's loop, its descriptors, signals and sockets, and the code that connects them."""
