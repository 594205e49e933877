"""Shared settings of the unit tests, which use no server and no real clock."""

from hypothesis import settings

# On a loaded machine, hypothesis must not fail a test only because it took 0.2 s.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")
