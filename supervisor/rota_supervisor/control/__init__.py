"""The control socket: where it is, and what is said there to the master of this node."""
