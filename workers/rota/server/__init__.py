"""Access to the server: addresses, Rota's own connections, and the errors of both."""
