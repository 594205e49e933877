"""What is claimed next, and why: asked of the server, pool by pool."""

from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from rota.client.outlook import (
    NOBODY,
    PoolOutlook,
    about_delayed,
    about_gone,
    about_queue,
    about_ready,
    about_scheduled,
    about_shut,
    outlook_of,
)
from rota.client.status import TaskStatus, status_of
from rota.durations import utc_datetime
from rota.protocol.command import Steps, ask
from rota.protocol.nodes import Node
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import State
from rota.protocol.turns import DEFAULT_CLAIMS, MOST_CLAIMS
from rota.protocol.views import Overview, QueueState
from rota.protocol.walks import find_task, look_further
from rota.protocol.wire import Packed

_MOST_LOOKED_AT: Final = 10_000  # of a lane, for the place of one task


@dataclass(frozen=True, slots=True)
class WantedClaims:
    """What is to be explained: the next `count` claims, of one pool if that is named; and how it is with a queue or a
    task."""

    count: int = DEFAULT_CLAIMS
    queue: str = ""
    task_id: str = ""
    pool: str = ""

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError for a count that is none, or for a queue and a task at once."""
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise TypeError(f"the number of claims must be a whole number, got {self.count!r}")
        if not 1 <= self.count <= MOST_CLAIMS:
            raise ValueError(f"the number of claims must be from 1 to {MOST_CLAIMS}, got {self.count!r}")
        if self.queue and self.task_id:
            raise ValueError("name a queue or a task, not both: a task stands in its queue")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The next claims at the instant `at`, as if nothing else were enqueued, became due or ended meanwhile: those of
    each pool by itself. No pool: no master says that it is there.

    `unserved`: queues with something ready that nobody serves; told when no queue and no task is asked about. `about`:
    how it is with the one that is, in lines of words; else "". `task`: where that task stands.
    """

    at: datetime
    pools: tuple[PoolOutlook, ...]
    unserved: tuple[str, ...]
    queue: str = ""
    task: TaskStatus | None = None
    about: str = ""


class UnknownPool(ValueError):
    """No master announces a pool of this name."""


def explain(store: Store, wanted: WantedClaims) -> Steps[Explanation]:
    """Ask the server. Raises UnknownPool."""
    found_task = (yield from find_task(store, wanted.task_id)) if wanted.task_id else None
    task = status_of(wanted.task_id, found_task) if found_task else None
    queue = task.queue if task else wanted.queue
    overview = yield from ask(store.overview((queue,) if queue else ()))
    if not queue:
        overview = yield from look_further(store, overview)
    pools = yield from _outlooks(store, replace(wanted, queue=queue, task_id=""), overview)
    unserved = tuple(each.queue for each in overview.queues if each.ready and not each.served and not queue)
    found = Explanation(utc_datetime(overview.now_us), pools, unserved, queue, task)
    if not queue:
        return replace(found, about=about_gone(task)) if task else found
    [state] = [each for each in overview.queues if each.queue == queue]
    return replace(found, about="\n".join((yield from _about(store, found, state))))


def _outlooks(store: Store, wanted: WantedClaims, overview: Overview) -> Steps[tuple[PoolOutlook, ...]]:
    closed = [each for each in overview.queues if each.closed_age_us]
    closed_since = {each.queue: utc_datetime(overview.now_us - each.closed_age_us) for each in closed}
    found = []
    for (pool, tiers), nodes in _pools((yield from ask(store.nodes())), wanted.pool).items():
        asked = yield from ask(store.explain(tiers, wanted.count, wanted.queue))
        found.append(outlook_of(pool, nodes, asked, closed_since))
    return tuple(found)


def _pools(nodes: list[Node], wanted: str) -> dict[tuple[str, Packed], list[str]]:
    """Who serves what, and on which nodes: those of one name differ where nodes have different configurations."""
    found: dict[tuple[str, Packed], list[str]] = {}
    for node in sorted(filter(attrgetter("is_alive"), nodes), key=attrgetter("name")):
        for pool, tiers in sorted(node.pools.items()):
            found.setdefault((pool, tiers), []).append(node.name)
    if not wanted:
        return found
    names = ", ".join(sorted({pool for pool, _ in found}))
    if wanted not in names.split(", "):
        raise UnknownPool(f'no running master has a pool "{wanted}": {f"there are {names}" if names else NOBODY}')
    return {key: its_nodes for key, its_nodes in found.items() if key[0] == wanted}


def _about(store: Store, found: Explanation, state: QueueState) -> Steps[list[str]]:
    """How it is with the queue that was asked of, or with the task, which stands in that queue."""
    task = found.task
    lines = [] if found.pools else [f"pools: {NOBODY}"]
    if task and task.state not in (State.READY, State.SCHEDULED):
        return [*lines, about_gone(task)]
    if task and task.state is State.READY:
        lines += about_ready(task, found.pools, (yield from _ahead(store, task)))
    elif task:
        lines += [about_scheduled(task, found.at), *about_shut(found.queue, found.pools)]
    else:
        lines += about_queue(found.queue, found.pools)
        if state.scheduled and not state.ready:
            lines.append(about_delayed(state, (yield from _next_due(store, state.queue)), found.at))
    if not state.served:
        lines.append("no master says that it serves this queue: is it in `tiers`, and the fleet running?")
    return lines


def _ahead(store: Store, task: TaskStatus) -> Steps[int | None]:
    """How many tasks of its queue are served before this one; None when it is not among the first thousands."""
    ahead, offset = 0, 0
    while offset < _MOST_LOOKED_AT:
        page = yield from ask(store.peek(State.READY, task.queue, "", offset, BATCH))
        for each in page.tasks:
            if each.id == task.id:
                return ahead
            ahead += 1
        if page.next_offset is None:
            return None
        offset = page.next_offset
    return None


def _next_due(store: Store, queue: str) -> Steps[datetime | None]:
    """When the next task of a queue is due, None when that is not among the next of the fleet."""
    page = yield from ask(store.peek(State.SCHEDULED, queue, "", 0, BATCH))
    tasks = page.tasks
    return utc_datetime(tasks[0].due_us) if tasks else None
