"""The task transitions that docs/protocol.md lists: the states before and after each event."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from rota.protocol.task_states import ENDS_OF_GONE, TaskEvent
from support.prose import ROOT

NOTHING: Final = "nothing"
ENDED: Final = frozenset(ENDS_OF_GONE)
_PAGE: Final = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
_ROW: Final = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \| ([a-z ]+) \|", re.MULTILINE)


class Way(NamedTuple):
    """The states of a task before and after an event."""

    sources: frozenset[str]
    target: str


def ways() -> dict[str, Way]:
    """Return the states before and after each task event, as the table in docs/protocol.md lists them."""
    table = _PAGE.partition("### Task events")[2].partition("\n* ")[0]
    return {event: Way(frozenset(sources.split(", ")), target) for event, sources, target in _ROW.findall(table)}


def places(events: Iterable[TaskEvent]) -> dict[str, str]:
    """Apply the events of a stream, and return the last state of each task. Raises AssertionError if an event is not
    possible in the current state of its task, which means that an event is missing or was sent twice.
    """
    known, at = ways(), dict[str, str]()
    for event in events:
        was = at.get(event.task_id, NOTHING)
        sources, target = known[event.event]
        assert (NOTHING if was in ENDED else was) in sources, f"{event} of a task that was {was}"
        at[event.task_id] = target
    return at
