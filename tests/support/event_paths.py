"""Which ways a task may take, as docs/protocol.md tells by its events: from where to where each one leads."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from rota.protocol.task_states import TaskEvent
from support.prose import ROOT

NOTHING: Final = "nothing"
ENDED: Final = frozenset({"done", "cancelled", "expired", "purged"})
_PAGE: Final = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
_ROW: Final = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \| ([a-z ]+) \|", re.MULTILINE)


class Way(NamedTuple):
    """What one event says of a task: where it was, and where it is now."""

    sources: frozenset[str]
    target: str


def ways() -> dict[str, Way]:
    """By event."""
    table = _PAGE.partition("### Task events")[2].partition("\n* ")[0]
    return {event: Way(frozenset(sources.split(", ")), target) for event, sources, target in _ROW.findall(table)}


def places(events: Iterable[TaskEvent]) -> dict[str, str]:
    """Follow each task of a stream from its beginning; returns where each is at last. Fails at an event that does not
    lead on from where its task was: one was untold then, or told twice."""
    known, at = ways(), dict[str, str]()
    for event in events:
        was = at.get(event.task_id, NOTHING)
        sources, target = known[event.event]
        assert (NOTHING if was in ENDED else was) in sources, f"{event} of a task that was {was}"
        at[event.task_id] = target
    return at
