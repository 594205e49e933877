"""Settings that all unit tests share. Unit tests use no server and no real clock."""

from hypothesis import settings

# Without this, hypothesis fails a test whose example took more than 0.2 s, which happens on a loaded machine.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")
