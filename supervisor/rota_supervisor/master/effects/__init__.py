"""The effects of the master on the system, as the core decided them."""
