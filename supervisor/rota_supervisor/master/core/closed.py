"""What is closed: queues from which nobody may claim, and this node while it is quiet. How long, and what is wrong."""

from collections.abc import Mapping
from typing import Final

from rota.protocol.entry import MICROSECONDS
from rota.protocol.views import ClosedQueue
from rota.telemetry import log_events as names
from rota.telemetry import metrics as m
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.events import ClosedSeen
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.notice import Closed

CLOSED_A_LOOK: Final = 100  # with as many there may be others: see conditions.lua
MOST_SHOWN: Final = 20


def closed_seen(state: MasterState, event: ClosedSeen, now: float) -> list[do.Effect]:
    """The fleet's queues were looked at: count and tell what is wrong with conditions, and how long we are quiet."""
    known, errors = state.closed_by_fault, _errors(state, event.closed)
    effects: list[do.Effect] = [do.AddToCounter(m.CONDITION_ERRORS, (queue,)) for queue in errors]
    for queue, row in errors.items():
        if queue not in known or known[queue].error != row.error:
            effects.append(do.error(names.CONDITION_FAILED, queue=queue, condition=row.closed_by, error=row.error))
    unseen = {queue: row for queue, row in known.items() if queue not in errors}
    state.closed, state.closed_at, state.closed_by_fault = event.closed, now, errors
    if len(event.closed) < CLOSED_A_LOOK:
        effects += [do.info(names.CONDITION_WORKS, queue=queue) for queue in unseen]
    else:  # a part of them was looked at
        state.closed_by_fault = {**unseen, **errors}
    return [*effects, do.SetGauge(m.QUIET_AGE, (), state.quiet_seconds(now))]


def shown(state: MasterState) -> tuple[Closed, ...]:
    """The closed queues, for people: those with a fault first, then the longest."""
    rows = sorted(state.closed, key=lambda row: (not row.error, -row.closed_age_us))[:MOST_SHOWN]
    return tuple(
        Closed(row.queue, row.closed_by, row.error, state.closed_at - row.closed_age_us / MICROSECONDS) for row in rows
    )


def _errors(state: MasterState, closed: tuple[ClosedQueue, ...]) -> Mapping[str, ClosedQueue]:
    """One for each name and each pattern: of tenants there may be thousands."""
    return {state.label_of_queue(row.queue): row for row in closed if row.error}
