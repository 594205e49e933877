"""The entry: an item of a lane or of an in-flight list. It is also the fencing token of one claim of a task.

Its text is `id queue kind due ready failures crashes losses releases flag`, with times in whole microseconds of Redis
time. The counters only grow, so the text changes with every attempt. A late settlement of an earlier attempt contains
an older text. No entry has this text any more, so the settlement changes nothing.

The flag is `-`, or up to four parts: `u` while the task holds a unique key, a number if earlier tasks with the same id
were cancelled, `b` if the task may be started at most once and is marked as started, and the kind of its last crash.
"""

from enum import StrEnum
from functools import lru_cache, partial
from typing import Final, NamedTuple

FIELDS = 10
_OWN_FIELDS: Final = 5  # number of fields before the counters
_STARTED = "b"
MICROSECONDS = 1_000_000


class _Letter(StrEnum):
    """A letter in an entry. The enum member is named after the word that the letter stands for."""

    @property
    def label(self) -> str:
        """The word in lower case, for metric labels and logs."""
        return self.name.lower()


class Kind(_Letter):
    """Why a task is in its lane. Tasks of kind IMMEDIATE use the ready lane, and those of all other kinds the delayed
    lane."""

    IMMEDIATE = "i"
    DELAYED = "d"
    RETRY = "r"
    PERIODIC = "p"
    THROTTLED = "t"  # the task had to wait for its rate limit; its due time stays the same
    RECOVERED = "c"  # the task was given back because its worker died; its due time is when that happened


class CrashKind(_Letter):
    """The kind of a task's last crash. LOST means that the worker's whole node was lost."""

    CRASH = "C"
    SIGNAL = "S"
    OOM = "O"
    HUNG = "H"
    TIMEOUT = "T"
    LOST = "L"


_KINDS = {kind.value: kind for kind in Kind}
_CRASH_KINDS = {kind.value: kind for kind in CrashKind}


class Entry(NamedTuple):
    """A parsed entry. The module's docstring describes its text."""

    text: bytes  # the text that Redis stores; a settlement sends this text back unchanged
    id: str
    queue: str
    kind: Kind
    due_us: int  # when the task was due, by Redis time
    ready_us: int  # when the task entered its lane, by Redis time
    failures: int  # number of attempts that failed
    crashes: int  # number of attempts that ended because their worker died
    losses: int  # number of attempts that ended because their node was lost
    releases: int  # number of times that the task was given back before it ended
    flag: str  # `-`, or the parts that the module's docstring describes

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. Failures, crashes and losses count as attempts; releases do not."""
        return 1 + self.failures + self.crashes + self.losses

    @property
    def is_marked_started(self) -> bool:
        """Whether the task may be started at most once and may have been started already."""
        return _STARTED in self.flag

    @property
    def last_crash(self) -> CrashKind | None:
        """The kind of the task's last crash or loss; None if the task never crashed or the kind is not known."""
        return _CRASH_KINDS.get(self.flag[-1:])


def parse_entry(text: bytes) -> Entry:
    """Parse an entry that a script returned. Raises ValueError if the text is not an entry. Rota's scripts never return
    such a text."""
    fields = text.decode().split(" ", _OWN_FIELDS)
    kind = _KINDS.get(fields[2]) if len(fields) == _OWN_FIELDS + 1 else None
    if kind is None:
        raise ValueError(f"not an entry: {text!r}")
    task_id, queue, _, due, ready, past = fields
    due_us = int(due)
    ready_us = due_us if ready == due else int(ready)
    return _entry_of((text, task_id, queue, kind, due_us, ready_us) + _past(past))  # noqa: RUF005 - twice as fast


@lru_cache(maxsize=64)  # nearly all entries end with `0 0 0 0 -`
def _past(text: str) -> tuple[int, int, int, int, str]:
    """Parse the last part of an entry: the counters and the flag."""
    fields = text.split(" ")
    if len(fields) != FIELDS - _OWN_FIELDS:
        raise ValueError(f"the text is not an entry, because its last fields are not valid: {text!r}")
    failures, crashes, losses, releases, flag = fields
    return int(failures), int(crashes), int(losses), int(releases), flag


# `Entry(...)` would call a Python function. `tuple.__new__` skips that call, so reading an entry takes a quarter less
# time.
_entry_of: Final = partial(tuple.__new__, Entry)
