"""Access to the server: addresses, connections of our own, and the errors of both."""
