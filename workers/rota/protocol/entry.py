"""The entry: one line of a lane or an in-flight list, and the fencing token of a task's life there.

Text: `id queue kind due ready failures crashes losses releases flag`, times in whole microseconds of
Redis time. The counters only grow, so no two lives of a task have the same text, and a late
settlement of an earlier life finds nothing to remove. The flag is `-`, or up to four things: `u` while the task
holds a unique key, the number of its life when earlier ones of its id were cancelled, `b` while it has begun and may
be started once at most, and the kind of its last crash.
"""

from enum import StrEnum
from functools import lru_cache, partial
from typing import Final, NamedTuple

FIELDS = 10
_OWN_FIELDS: Final = 5  # those before the counters
_BEGUN = "b"
MICROSECONDS = 1_000_000


class _Letter(StrEnum):
    """A letter in an entry; its member's name is the word for it."""

    @property
    def label(self) -> str:
        """The word, as a metric label and in logs."""
        return self.name.lower()


class Kind(_Letter):
    """Where a task comes from. All but immediate ones use the delayed lane. A throttled one had to wait for the rate of
    its task; it is due since it was before. A recovered one was given back when its worker died under it, and is due
    since then."""

    IMMEDIATE = "i"
    DELAYED = "d"
    RETRY = "r"
    PERIODIC = "p"
    THROTTLED = "t"
    RECOVERED = "c"


class CrashKind(_Letter):
    """How the worker under a task's last attempt ended; LOST when its whole node was lost."""

    CRASH = "C"
    SIGNAL = "S"
    OOM = "O"
    HUNG = "H"
    TIMEOUT = "T"
    LOST = "L"


_KINDS = {kind.value: kind for kind in Kind}
_CRASH_KINDS = {kind.value: kind for kind in CrashKind}


class Entry(NamedTuple):
    """A parsed entry. `text` is what Redis holds; settlements send it back unchanged."""

    text: bytes
    id: str
    queue: str
    kind: Kind
    due_us: int
    ready_us: int
    failures: int
    crashes: int
    losses: int
    releases: int
    flag: str

    @property
    def attempt(self) -> int:
        """The number of this start, from 1: failures, crashes and losses were starts too."""
        return 1 + self.failures + self.crashes + self.losses

    @property
    def has_begun(self) -> bool:
        """Whether it may be started once at most, and that may have happened."""
        return _BEGUN in self.flag

    @property
    def last_crash(self) -> CrashKind | None:
        """The kind of its last crash or loss, None when there was none or it is not known."""
        return _CRASH_KINDS.get(self.flag[-1:])


def parse_entry(text: bytes) -> Entry:
    """Parse an entry as a script returned it.

    Raises ValueError when the text is not an entry; scripts return nothing else.
    """
    fields = text.decode().split(" ", _OWN_FIELDS)
    kind = _KINDS.get(fields[2]) if len(fields) == _OWN_FIELDS + 1 else None
    if kind is None:
        raise ValueError(f"not an entry: {text!r}")
    task_id, queue, _, due, ready, past = fields
    due_us = int(due)
    ready_us = due_us if ready == due else int(ready)
    return _entry_of((text, task_id, queue, kind, due_us, ready_us) + _past(past))  # noqa: RUF005 - twice as fast


@lru_cache(maxsize=64)  # nearly all are `0 0 0 0 -`
def _past(text: str) -> tuple[int, int, int, int, str]:
    """What an entry says of the task's life so far: the counters and the flag."""
    fields = text.split(" ")
    if len(fields) != FIELDS - _OWN_FIELDS:
        raise ValueError(f"not an entry, by what it ends in: {text!r}")
    failures, crashes, losses, releases, flag = fields
    return int(failures), int(crashes), int(losses), int(releases), flag


# `Entry(...)` goes through a function of Python's: without it each entry is read in three quarters of the time.
_entry_of: Final = partial(tuple.__new__, Entry)
