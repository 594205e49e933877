"""What became of one attempt, as values, and how each is told to Redis.

A settlement is an entry with its outcome. On the wire it is four arguments, `entry verb first second`,
which the scripts `turn` and `retire` take alike, so the bytes a worker leaves in its slot are the bytes
the master settles with when the worker was killed before its answer came.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from rota.protocol.entry import Entry
from rota.protocol.wire import Arg, Packed, pack

ARGS_PER_SETTLEMENT = 4


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned. `result` is kept for `result_ttl_ms` when that is above 0."""

    result: bytes = b""
    result_ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed and another is due `delay_us` microseconds after it is settled."""

    delay_us: int


@dataclass(frozen=True, slots=True)
class Dead:
    """The last attempt failed; the task is set aside with `epitaph`, a JSON object, for people to read."""

    epitaph: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Not run, or not to its end, through no fault of the task: back to the head of its lane."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Ended because somebody asked."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Ended without being started: its `expires` had passed."""


Outcome = Done | Retry | Dead | Release | Cancelled | Expired


@dataclass(frozen=True, slots=True)
class Settlement:
    """One entry and its outcome."""

    entry: Entry
    outcome: Outcome


def settlement_args(settlement: Settlement) -> tuple[Arg, ...]:
    """The four arguments a script takes for a settlement."""
    text = settlement.entry.text
    match settlement.outcome:
        case Done(result, ttl_ms):
            return text, "done", result, ttl_ms
        case Retry(delay_us):
            return text, "retry", delay_us, ""
        case Dead(epitaph):
            return text, "dead", epitaph, ""
        case Release():
            return text, "release", "", ""
        case Cancelled():
            return text, "cancelled", "", ""
        case Expired():
            return text, "expired", "", ""
        case _:
            assert_never(settlement.outcome)


def pack_settlements(settlements: Iterable[Settlement]) -> Packed:
    """Pack settlements for `turn` and `retire`, and for the slot."""
    return pack(arg for settlement in settlements for arg in settlement_args(settlement))
