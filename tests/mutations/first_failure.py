"""A pytest plugin that makes Hypothesis report the first failure without shrinking it. Shrinking takes a minute, and
the result of a mutation does not depend on a small example.
"""

from hypothesis import Phase, settings

settings.register_profile("first failure", phases=(Phase.generate,), database=None, report_multiple_bugs=False)
settings.load_profile("first failure")
