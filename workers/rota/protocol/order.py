"""The order of the next claims, as the script `explain` tells it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rota.protocol.entry import Entry, parse_entry
from rota.protocol.replies import Raw, reply
from rota.protocol.wire import shown, text_of

DEFAULT_CLAIMS = 10
MOST_CLAIMS = 1000
NOBODY = "explain:0:0"
"""The owner for which claims are explained: no life has the number 0."""


class EntryInOrder(NamedTuple):
    """An entry that is claimed, and the name of its task, "" when none can be read."""

    entry: Entry
    name: str


class QueueInOrder(NamedTuple):
    """A queue of a tier, before the claims and after them.

    `cost`: of one entry, in virtual time. `entries`, `running` and `time` (its virtual time, None when it was never
    served) are from before the first claim. `left` are its entries behind the last one; `is_open`: nothing keeps it
    shut; `wait_us`: how long its rate limit holds the next one back, 0 when it does not. `closed`: its
    `condition` keeps it so, `opens_us`: until then, 0 when that is not known; `fault`: what is wrong with that one.
    """

    queue: str
    tier: int
    cost: int
    cap: int
    interval_us: int
    entries: int
    running: int
    time: int | None
    left: int
    is_open: bool
    wait_us: int
    paused: bool
    condition: str
    closed: bool
    opens_us: int
    fault: str


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """The next claims. `is_whole`: they are as many as were asked for, or all there are."""

    now_us: int
    is_whole: bool
    claims: tuple[EntryInOrder, ...]
    queues: tuple[QueueInOrder, ...]


def _number(raw: Raw) -> int:
    """What stands where a number should; somebody else's is none."""
    return int(raw) if isinstance(raw, int) or raw.isdigit() else 0


def _time(raw: Raw) -> int | None:
    time, _, turn = raw.partition(b" ")
    return int(time) if time.isdigit() and turn.isdigit() else None


def _shown(raw: Raw) -> str:
    return shown(text_of(raw))


_QUEUE: tuple[Callable[[Raw], Any], ...] = (
    text_of,
    *[int] * 5,
    _number,
    _time,
    int,
    bool,
    int,
    bool,
    _shown,
    bool,
    int,
    _shown,
)
_queue = reply(QueueInOrder, *_QUEUE)


def _claims(raw: Sequence[Raw]) -> tuple[EntryInOrder, ...]:
    pairs = zip(raw[::2], raw[1::2], strict=True)
    return tuple(EntryInOrder(parse_entry(text), _shown(name)) for text, name in pairs)


parse_order = reply(ClaimOrder, int, bool, _claims, lambda raw: tuple(map(_queue, raw)))
