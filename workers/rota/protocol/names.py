"""Names that people choose, queues, tasks, ids, namespaces and nodes, and patterns in the place of queue names.

Names become parts of keys and fields of space-separated entries, so the alphabet leaves out
spaces, braces and everything a Lua pattern would have to guess about.

A pattern, for example `tenant-*`, is every queue that begins with `tenant-`. A queue is served as its own name where
that is in the tiers, else as the longest pattern that it fits: in one tier, whatever pool asks. The scripts match in
the same way: rota/lua/shared/matching.lua.
"""

import re
from collections.abc import Iterable
from typing import Final

from rota.redaction import HIDDEN

MOST_CHARACTERS: Final = 128
NAME = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MOST_CHARACTERS}}}", re.ASCII)
DELAYED_SUFFIX = "-delayed"
# A URL in the place of a name, however it was mistyped, may hold a password.
_MAY_BE_SECRET: Final = re.compile(r"@|//")


def is_name(text: str) -> bool:
    """Whether text may name a task, an id, a namespace or a node."""
    return NAME.fullmatch(text) is not None


def fault_in_name(what: str, text: str, most: int = MOST_CHARACTERS) -> str | None:
    """Say what is wrong with a name, or None; `what` is the word for it, as in "queue name"."""
    if is_name(text) and len(text) <= most:
        return None
    shown = HIDDEN if _MAY_BE_SECRET.search(text) else repr(text)
    return f"{what} {shown} is not usable: names are 1 to {most} of the characters A-Z a-z 0-9 _ . : -"


def fault_in_queue_name(text: str) -> str | None:
    """Say what is wrong with a queue name, or None."""
    if "*" in text:
        return f"queue name {text!r} is a pattern, which only tiers and pools may name: here one queue is meant"
    if text.endswith(DELAYED_SUFFIX):
        return f"queue name {text!r} may not end in {DELAYED_SUFFIX!r}: that suffix names the delayed lane of a queue"
    return fault_in_name("queue name", text)


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
