"""The benchmark of many nodes on one server: see `__main__`."""
