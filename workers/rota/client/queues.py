"""The queues of a namespace, with how many tasks stand where."""

from dataclasses import dataclass

from rota.durations import MICROSECONDS
from rota.protocol.command import Steps, ask
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota.protocol.walks import look_further


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue: how many tasks are ready, scheduled (of these `overdue`), running and dead, and how many it ever
    accepted. `oldest_ready_seconds`: for how long the first has been ready, 0 without one. `served`: whether a running
    fleet claims from it. `closed_by`: the condition that keeps it closed, or ""."""

    queue: str
    ready: int
    scheduled: int
    overdue: int
    running: int
    dead: int
    accepted: int
    oldest_ready_seconds: float
    paused: bool
    served: bool
    closed_by: str


def find_queues(store: Store) -> Steps[list[QueueCounts]]:
    """All queues that have or had tasks, by name."""
    overview = yield from look_further(store, (yield from ask(store.overview(()))))
    return sorted(map(_counts_of, overview.queues), key=lambda each: each.queue)


def _counts_of(state: QueueState) -> QueueCounts:
    return QueueCounts(
        queue=state.queue,
        ready=state.ready,
        scheduled=state.scheduled,
        overdue=state.overdue,
        running=state.inflight,
        dead=state.dead,
        accepted=state.accepted,
        oldest_ready_seconds=state.oldest_ready_age_us / MICROSECONDS,
        paused=state.paused,
        served=state.served,
        closed_by=state.closed_by,
    )
