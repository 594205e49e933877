"""Patterns in the place of queue names: `tenant-*` is every queue that begins with `tenant-`.

A queue is served as its own name where that stands in the tiers, else as the longest pattern that it fits: in one tier,
whatever pool asks. The scripts match in the same way: rota/lua/shared/matching.lua.
"""

from collections.abc import Iterable

from rota.protocol.names import fault_in_name

STAR = "*"


def is_pattern(name: str) -> bool:
    """Whether this name in a tier is a pattern."""
    return name.endswith(STAR)


def fault_in_pattern(text: str) -> str | None:
    """Say what is wrong with a pattern, or None."""
    prefix = text.removesuffix(STAR)
    if STAR in prefix:
        return f"pattern {text!r} is not usable: {STAR} may only stand at its end"
    return fault_in_name("pattern", prefix)


def fits(pattern: str, queue: str) -> bool:
    """Whether a queue, or a longer pattern, is one of those that the pattern stands for."""
    return queue != pattern and queue.startswith(pattern.removesuffix(STAR))


def served_as(queue: str, names: Iterable[str]) -> str | None:
    """Of these names and patterns the one as which a queue is served; None when none of them is for it."""
    fitting = [name for name in names if name == queue or (is_pattern(name) and fits(name, queue))]
    return queue if queue in fitting else max(fitting, key=len, default=None)
