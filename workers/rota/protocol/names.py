"""The rule for every name a person chooses: queues, tasks, ids, namespaces, nodes.

Names become parts of keys and fields of space-separated entries, so the alphabet leaves out
spaces, braces and everything a Lua pattern would have to guess about.
"""

import re
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
