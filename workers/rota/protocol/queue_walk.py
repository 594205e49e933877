"""Looking at all queues, portion by portion: with patterns there may be any number of them."""

from collections.abc import Callable
from dataclasses import replace

from rota.protocol.command import Steps, ask
from rota.protocol.store import Store
from rota.protocol.views import Overview


def _never() -> bool:
    return False


def look_further(store: Store, overview: Overview, is_enough: Callable[[], bool] = _never) -> Steps[Overview]:
    """Return a first portion with all that follow, or with those that were looked at when `is_enough`: then there are
    `more`."""
    rows, last = {row.queue: row for row in overview.queues}, overview
    while last.more and not is_enough():
        last = yield from ask(store.overview((), last.cursor))
        rows.update((row.queue, row) for row in last.queues)
    return replace(overview, queues=tuple(rows.values()), cursor=last.cursor)
