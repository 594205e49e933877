"""Where everything stands in the memory of the slots, in words of 8 bytes.

First the roster (see `roster`), then one region a slot: header | two copies of the current task | progress (see
`slot_progress`) | finished outcomes | metrics (see `recorder`).

Each part is declared once: its fields in their order, and how many words each takes. `offsets` is derived from that.
"""

from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

WORD: Final = 8
_ENTRY_WORDS: Final = 55  # the longest entry has 374 bytes: two names of 128, six numbers of 16 digits, and the rest
_NAME_WORDS: Final = 16
ENTRY_BYTES: Final = _ENTRY_WORDS * WORD
NAME_BYTES: Final = _NAME_WORDS * WORD
_PROGRESS_WORDS: Final = 26  # two before its text
PROGRESS_BYTES: Final = _PROGRESS_WORDS * WORD


class RosterFields(NamedTuple):
    """What the master tells one process."""

    nonce: int = 1
    pid: int = 1
    renewed_ns: int = 1
    recalled: int = 1
    quiet: int = 1
    watch_granted: int = 1
    watched: int = 1
    unused: int = 1


class HeaderFields(NamedTuple):
    """The beginning of a region. `outcomes`: how many arguments those are and how many bytes, in one word, so that a
    process killed between two writes never leaves a count with the length of another. `seal`: the nonce again."""

    outcomes: int = 1
    seal: int = 1
    phase: int = 1
    beat_ns: int = 1
    task_number: int = 1
    watch_asked: int = 1
    recycle_reason: int = 1
    shortest_soft_ns: int = 1
    shortest_soft_met_ns: int = 1
    unused: int = 7


class TaskFields(NamedTuple):
    """A copy of the current task. A text is its length and then its bytes."""

    started_ns: int = 1
    deadline_ns: int = 1
    claimed_ns: int = 1
    unstarted: int = 1
    entry: int = 1 + _ENTRY_WORDS
    name: int = 1 + _NAME_WORDS
    soft_deadline_ns: int = 1
    unused: int = 2


class RegionFields(NamedTuple):
    """The parts of a region: 64 kB up to the metrics, 1 MB in all."""

    header: int = sum(HeaderFields())
    tasks: int = 2 * sum(TaskFields())
    progress: int = _PROGRESS_WORDS
    outcomes: int = (64 << 10) // WORD - header - tasks - progress
    metrics: int = (960 << 10) // WORD


Fields = TypeVar("Fields", RosterFields, HeaderFields, TaskFields, RegionFields)


def offsets(sizes: Fields) -> Fields:
    """The word at which each field begins, from the words that each takes."""
    return type(sizes)._make(accumulate(sizes[:-1], initial=0))


ROSTER: Final = offsets(RosterFields())
ROSTER_WORDS: Final = sum(RosterFields())  # of one slot
ROSTER_PART_BYTES: Final = ROSTER_WORDS * WORD
HEADER: Final = offsets(HeaderFields())
TASK: Final = offsets(TaskFields())
TASK_WORDS: Final = sum(TaskFields())
REGION: Final = offsets(RegionFields())
REGION_BYTES: Final = sum(RegionFields()) * WORD
OUTCOMES_AT: Final = REGION.outcomes * WORD
METRICS_AT: Final = REGION.metrics * WORD


def task_at(number: int) -> int:
    """The word at which the copy of the current task stands that this number publishes."""
    return REGION.tasks + ((number >> 1) & 1) * TASK_WORDS
