"""The control socket: its path, and the protocol with the master of this node."""
