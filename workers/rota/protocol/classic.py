"""Classic queues: lists and sorted sets of the server, in no namespace, that producers write to as they always did."""

from dataclasses import dataclass
from typing import NamedTuple

from rota.protocol.replies import Raw, pairs_of_texts, reply, time_or_none
from rota.protocol.wire import text_of


class ClassicSource(NamedTuple):
    """A key to take from. `queue`: where its items go, "" where each says itself. `task`: what each item is the one
    argument of, "" where each says itself."""

    key: str
    queue: str = ""
    task: str = ""


class FromSource(NamedTuple):
    """What one call took from a source, what it left there, and what is wrong with the source ("": nothing)."""

    taken: int
    left: int
    fault: str


@dataclass(frozen=True, slots=True)
class AdoptedClassic:
    """What was taken from sources, in their order. `on_duty`: whether this poller is the one that listens for the
    fleet. `next_due_us`: of what waits in sorted sets. `more`: there is more to take now. `dead`: queue and reason of
    each item that is dead at once."""

    now_us: int
    on_duty: bool
    next_due_us: int | None
    more: bool
    sources: tuple[FromSource, ...]
    dead: tuple[tuple[str, str], ...]


def _of_sources(raw: Raw) -> tuple[FromSource, ...]:
    thirds = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    return tuple(FromSource(int(taken), int(left), text_of(fault)) for taken, left, fault in thirds)


parse_adopted_classic = reply(AdoptedClassic, int, bool, time_or_none, bool, _of_sources, pairs_of_texts)
