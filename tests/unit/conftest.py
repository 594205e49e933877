"""Unit tests: no server, no clock but a fake one."""

from hypothesis import settings

# A loaded machine is slow, not wrong: hypothesis must not fail a test for taking 0.2 s.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")
