"""Reaching the server: addresses, connections of our own, and what can go wrong with them."""
