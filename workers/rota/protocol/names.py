"""The rule for every name a person chooses: queues, tasks, ids, namespaces, nodes; and for patterns of queues.

Names become parts of keys and fields of space-separated entries, so the alphabet leaves out
spaces, braces and everything a Lua pattern would have to guess about. No name has the star of a pattern.
"""

import re
from collections.abc import Iterable

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
RULE = "1 to 128 of the characters A-Z a-z 0-9 _ . : -"
DELAYED_SUFFIX = "-delayed"
STAR = "*"


def is_name(text: str) -> bool:
    """Whether text may name a task, an id, a namespace or a node."""
    return NAME.fullmatch(text) is not None


def fault_in_name(what: str, text: str) -> str | None:
    """Say what is wrong with a name, or None; `what` is the word for it, as in "queue name"."""
    return None if is_name(text) else f"{what} {text!r} is not usable: names are {RULE}"


def fault_in_queue_name(text: str) -> str | None:
    """Say what is wrong with a queue name, or None."""
    if STAR in text:
        return f"queue name {text!r} is a pattern: tiers and pools may name one, and here one of its queues is meant"
    if text.endswith(DELAYED_SUFFIX):
        return f"queue name {text!r} may not end in {DELAYED_SUFFIX!r}: that suffix names the delayed lane of a queue"
    return fault_in_name("queue name", text)


def is_pattern(text: str) -> bool:
    """Whether text stands for all queues whose names begin so, as in `tenant-*`."""
    return STAR in text


def fault_in_pattern(text: str) -> str | None:
    """Say what is wrong with a pattern of queues, or None."""
    beginning, star, rest = text.partition(STAR)
    if not beginning and not rest:
        return f'a pattern needs what its queues begin with, as in "tenant-{STAR}": {STAR} alone would take every queue'
    if rest or not star:
        return f'pattern {text!r} is not usable: {STAR} stands at its end and once, as in "tenant-{STAR}"'
    return fault_in_name("the beginning of a pattern", beginning)


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern stands for this queue, or for whatever this pattern does."""
    return is_pattern(pattern) and name.startswith(pattern[:-1])


class Patterns:
    """The patterns among these names of queues. Of two that overlap the first counts."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_beginning = tuple((name[:-1], name) for name in names if is_pattern(name))

    def of(self, queue: str) -> str:
        """Return the pattern that stands for a queue; the queue itself when none does."""
        for beginning, pattern in self._by_beginning:
            if queue.startswith(beginning):
                return pattern
        return queue
