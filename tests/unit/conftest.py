"""Settings that all unit tests share. Unit tests use no server and no real clock."""

from hypothesis import settings

# By default, hypothesis fails a test if an example takes more than 0.2 s, which happens on a loaded machine.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")
