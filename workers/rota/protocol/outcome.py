"""What became of one attempt, as values, and how each is sent to Redis.

A settlement is an entry with its outcome. On the wire it is four arguments, `entry verb first second`,
which the scripts `turn` and `retire` take alike, so the bytes a worker leaves in its slot are the bytes
the master settles with when the worker was killed before its answer came.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from rota.protocol.entry import Entry
from rota.protocol.wire import Arg, Packed, pack, packed_in

ARGS_PER_SETTLEMENT = 4
_NO_FLAG: Final = b" -"


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned. `result` is kept for `result_ttl_ms` when that is above 0. `refused`: why it is not,
    though it was to be."""

    result: bytes = b""
    result_ttl_ms: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """The attempt failed and another is due `delay_us` microseconds after it is settled. `account`: what is kept of it,
    a JSON object on one line."""

    delay_us: int
    account: bytes = b""


@dataclass(frozen=True, slots=True)
class DeadOutcome:
    """The last attempt failed; the task is set aside with `epitaph`, a JSON object, for people to read."""

    epitaph: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Not run, or not to its end, through no fault of the task: back to the head of its lane."""


@dataclass(frozen=True, slots=True)
class CancelledOutcome:
    """Ended because somebody asked."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Ended without being started: its `expires` had passed."""


DONE: Final = Done()
"""What nearly all outcomes are: without a result to keep."""

Outcome = Done | RetryOutcome | DeadOutcome | Release | CancelledOutcome | Expired


class Settlement(NamedTuple):
    """One entry and its outcome. `account`: of the run that ended the task (see `ends`), empty when its end is not to
    be remembered."""

    entry: Entry
    outcome: Outcome
    account: bytes = b""


def settlement_args(settlement: Settlement) -> tuple[Arg, ...]:
    """The four arguments a script takes for a settlement."""
    text, account = settlement.entry.text, settlement.account
    match settlement.outcome:
        case Done(result, ttl_ms, refused):
            return text, "done", account, b"%d %b" % (ttl_ms, result) if ttl_ms > 0 or refused else ""
        case RetryOutcome(delay_us, of_attempt):
            return text, "retry", delay_us, of_attempt
        case DeadOutcome(epitaph):
            return text, "dead", epitaph, ""
        case Release():
            return text, "release", "", ""
        case CancelledOutcome():
            return text, "cancelled", account, ""
        case Expired():
            return text, "expired", account, ""
        case _:
            assert_never(settlement.outcome)


def pack_settlement(settlement: Settlement) -> bytes:
    """The wire form of one settlement's arguments, for `turn` and `retire`, and for the slot."""
    entry, outcome, account = settlement
    if outcome is DONE:
        text = entry.text
        return b"$%d\r\n%b\r\n$4\r\ndone\r\n$%d\r\n%b\r\n$0\r\n\r\n" % (len(text), text, len(account), account)
    return pack(settlement_args(settlement)).data


def plain_lines(settlement: Settlement) -> bytes:
    """What is told by a turn of a task that is done and of which there is no more to say: its entry and its account, as
    the memory of ends has them (lua/shared/ends.lua). b"" for one that is settled by four arguments."""
    entry, outcome, account = settlement
    is_plain = outcome is DONE and account and entry.text.endswith(_NO_FLAG)
    return b"\n%b\n%b" % (entry.text, account) if is_plain else b""


def join_settlements(packed: Collection[bytes]) -> Packed:
    """Settlements, packed one by one, as arguments."""
    return Packed(len(packed) * ARGS_PER_SETTLEMENT, b"".join(packed))


def settlements_in(count: int, data: bytes) -> Packed:
    """The settlements that a worker left in its slot; none when what stands there is nonsense."""
    return packed_in(count, data, ARGS_PER_SETTLEMENT)
