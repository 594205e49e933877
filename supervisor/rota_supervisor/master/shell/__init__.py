"""The master's loop, descriptors, signals and sockets, and the code that connects them."""
