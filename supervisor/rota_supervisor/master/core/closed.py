"""What is closed: queues from which nobody may claim, and this node while it is quiet. How long, and what is wrong."""

from collections.abc import Mapping

from rota.protocol.views import ClosedQueue
from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.events import ClosedSeen
from rota_supervisor.master.core.state import MasterState


def closed_seen(state: MasterState, event: ClosedSeen, now: float) -> list[do.Effect]:
    """The fleet's queues were looked at: count and tell what is wrong with conditions, and how long we are quiet."""
    before, state.closed, state.closed_at = state.closed, event.closed, now
    known, errors = _errors(before), _errors(event.closed)
    effects: list[do.Effect] = [do.AddToCounter(m.CONDITION_ERRORS, (queue,)) for queue in errors]
    for queue, row in errors.items():
        if queue not in known or known[queue].error != row.error:
            effects.append(do.error(names.CONDITION_FAILED, queue=queue, condition=row.closed_by, error=row.error))
    effects += [do.info(names.CONDITION_WORKS, queue=queue) for queue in known if queue not in errors]
    return [*effects, do.SetGauge(m.QUIET_AGE, (), state.quiet_seconds(now))]


def rows(state: MasterState, now: float) -> list[dict[str, object]]:
    """The closed queues, for people."""
    return [
        {
            "queue": row.queue,
            "condition": row.closed_by,
            "error": row.error,
            "seconds": round(row.closed_age_us / 1_000_000 + now - state.closed_at, 1),
        }
        for row in state.closed
    ]


def _errors(closed: tuple[ClosedQueue, ...]) -> Mapping[str, ClosedQueue]:
    return {row.queue: row for row in closed if row.error}
