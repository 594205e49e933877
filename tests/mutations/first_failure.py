"""A plugin of pytest: Hypothesis reports the first failure as it is. To shrink it takes a minute, and nobody will
read it."""

from hypothesis import Phase, settings

settings.register_profile("first failure", phases=(Phase.generate,), database=None, report_multiple_bugs=False)
settings.load_profile("first failure")
