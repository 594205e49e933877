"""The control socket: its path, and the protocol spoken there with the master of this node."""
