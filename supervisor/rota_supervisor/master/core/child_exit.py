"""The death of a child: its report, its effect on the pool, and the return of the tasks that the child held."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rota.child.slot_record import KillPolicy, TaskInSlot
from rota.protocol.entry import MICROSECONDS, Entry, parse_entry
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.outcome import (
    AT_MOST_ONCE,
    CRASHED,
    TIME_LIMIT,
    DeadOutcome,
    Release,
    RetryOutcome,
    Settlement,
    join_settlements,
    pack_settlement,
)
from rota.protocol.store import ALL_HELD, FIRST_HELD, Blame
from rota.protocol.tiers import NO_TIERS
from rota.protocol.wire import NOTHING, Packed
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import master_events, reload_steps
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.death import Death, death_record_of, fields_of, reason_of
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.start_backoff import ChildEnd
from rota_supervisor.master.core.state import MasterState

_EVENTS: Final = {
    Role.WORKER: log_events.WORKER_EXITED,
    Role.ZYGOTE: log_events.ZYGOTE_EXITED,
    Role.POLLER: log_events.POLLER_EXITED,
    Role.EXPORTER: log_events.EXPORTER_EXITED,
}


def died(state: MasterState, event: master_events.Died, now: float) -> list[do.Effect]:
    """Report the death of a child, update the back-off of its pool, and return the tasks that the child held."""
    child = state.children.get(event.slot, event.nonce)
    if child is None:
        return []
    limits = state.config_of(child.generation).limits
    death = Death(child, reason_of(child, event.ending), event, limits, now, state.stop, child.has_work)
    child.move(ChildState.EXITED)
    child.has_work = bool(event.tasks) or event.outcomes != NOTHING
    state.first_crashes[child.pool] += death.first_attempts
    used = do.AddToCounter(m.PROCESS_CPU, (child.role.value, str(child.slot)), event.ending.cpu_seconds)
    effects = [used, *_report(state, death, now)]
    if not (death.reason.facts.is_expected or _was_unwanted(child)):
        _feed_backoff(state, child, _end_of(death))
    if not state.stop.is_requested and child.why is not Reason.SURPLUS:
        effects.append(do.AddToCounter(m.PROCESS_RESTARTS, (child.role.value, death.reason.label)))
    if child.ready_at is None:
        effects += reload_steps.died_starting(state, death, now)
    return [*effects, do.CloseChannels(child.ref), *_give_back(state, child, death)]


def not_started(
    state: MasterState, child: Child, why: str, now: float, *, from_outside: bool = False
) -> list[do.Effect]:
    """Record that a child could not be started.

    `from_outside` is true if the child itself was not the cause, for example if its zygote had died.
    """
    log = do.info if _was_unwanted(child) else do.error
    failed = log(log_events.FLEET_CALL_FAILED, child=child.role.value, slot=child.slot, error=why)
    child.move(ChildState.EXITED)
    if not _was_unwanted(child):
        end = ChildEnd(child.requested_at, now, child.ready_at, explained=True, from_outside=from_outside, text=why)
        _feed_backoff(state, child, end)
    return [failed, do.CloseChannels(child.ref), *_give_back(state, child)]


def _report(state: MasterState, death: Death, now: float) -> list[do.Effect]:
    """Log a death as one event, and keep it for `rota status` if the child died unexpectedly or had to be killed."""
    fields = fields_of(death)
    if death.reason.facts.is_expected and not death.is_late:
        return [do.info(_event_of(death), **fields)]
    state.last_death = {**fields, "at": now}
    return [do.warning(_event_of(death), **fields)]


def _event_of(death: Death) -> str:
    """Return the name of the log event for a death. A worker that the master killed has a different event from a worker
    that died for another reason."""
    child = death.child
    if child.role is not Role.WORKER or child.why is not death.reason or death.event.ending.signal_name != "SIGKILL":
        return _EVENTS[child.role]
    return log_events.WORKER_HUNG if death.reason is Reason.HUNG else log_events.WORKER_KILLED


# The effect on the pool


def _was_unwanted(child: Child) -> bool:
    """Whether the master ended the child only because it no longer wanted it, for example because of a reload. The
    child itself was not at fault."""
    return child.why is not None and child.why.facts.is_expected


def _end_of(death: Death) -> ChildEnd:
    child = death.child
    event = death.event
    return ChildEnd(
        child.requested_at,
        death.died_at,
        child.ready_at,
        explained=death.reason.facts.is_explained,
        from_outside=death.is_from_outside,
        in_task=bool(event.tasks) or not event.slot_is_intact,
        has_worked=child.ready_at is not None and event.has_worked,
        text=death.text,
    )


def _feed_backoff(state: MasterState, child: Child, end: ChildEnd) -> None:
    state.backoffs[child.key] = state.backoff_of(child.key).after_end(end, state.config.restarts)


# The tasks that the child held


def _give_back(state: MasterState, child: Child, death: Death | None = None) -> list[do.Effect]:
    """Reap the owner of a worker that died or was never started. The slot stays taken until the owner has been reaped.
    If the child has no owner, its slot is freed at once."""
    if not child.owner:
        return _freed(state, child)
    state.leases.known_lost.discard(child.owner)
    limits = state.config_of(child.generation).restarts
    blame = Blame(crash_limit=limits.crash_limit, loss_limit=limits.loss_limit)
    reap = do.ReapOwner(child.slot, child.nonce, child.owner, {}, blame, NOTHING, tiers_of(state, child))
    return [reap if death is None else _with_its_work(reap, death)]


def tiers_of(state: MasterState, child: Child) -> Packed:
    """Return the queues that a worker serves, by tier, or no tiers if its pool no longer exists."""
    pool = state.settings_of(child)
    return NO_TIERS if pool is None else pool.tiers


def _with_its_work(reap: do.ReapOwner, death: Death) -> do.ReapOwner:
    event = death.event
    facts = death.reason.facts
    if event.slot_is_intact:
        names = {task.id: task.name for task in event.tasks}
        ran = _ran(death)
    else:  # The slot cannot be read. Blame the first task held, or all tasks if the worker ran several at once.
        held = FIRST_HELD if death.child.concurrency == 1 else ALL_HELD
        names = {FIRST_HELD: UNKNOWN_TASK}
        ran = ((held, death_record_of(death, None)),)
    own_limit = 0 if death.task is None else KillPolicy.from_word(death.task.kill_policy).crash_limit
    crash_limit = own_limit or reap.blame.crash_limit
    over_limit = settlements_of(death)
    return reap._replace(
        names=names,
        blame=replace(reap.blame, ran=ran, crash=facts.mark if facts.blames_task else None, crash_limit=crash_limit),
        settlements=event.outcomes + join_settlements([pack_settlement(each) for each in over_limit]),
        over_limit=over_limit,
        has_left=death.has_left,
    )


def _ran(death: Death) -> tuple[tuple[str, bytes], ...]:
    """Return the tasks that were running when a child died, as pairs of an id and the death record to store with the
    task. The record is `b""` for a task that cannot have caused the death."""
    blamed_tasks = {task.id for task in death.blamed_tasks}
    return tuple(
        (task.id, death_record_of(death, task) if task.id in blamed_tasks else b"") for task in death.event.tasks
    )


def _freed(state: MasterState, child: Child) -> list[do.Effect]:
    state.children.forget(child)
    return [do.FreeSlot(child.slot)]


def owner_reaped(state: MasterState, event: master_events.OwnerReaped, _now: float) -> list[do.Effect]:
    """Free the slot of a dead worker whose tasks are back in their lanes, and report the outcome of each task.

    A task that was running becomes dead if it has now reached its crash limit.
    """
    request, reply = event
    child = state.children.get(request.slot, request.nonce)
    effects = [] if child is None else _freed(state, child)
    for over_limit in request.over_limit:
        if over_limit.entry.text not in reply.stale:
            effects += report_over_limit(over_limit, request)
    for entry in reply.requeued:
        effects += _given_back(entry, request)
    for entry in reply.dead:
        effects += _set_aside(entry, request)
    return effects


def _given_back(entry: Entry, request: do.ReapOwner) -> list[do.Effect]:
    """Report that a task went back to its lane. The task was released if its worker left on request, and recovered if
    its worker died."""
    fields = _fields(entry, request)
    if request.has_left:
        released = do.info(log_events.TASK_RELEASED, **fields, kind=entry.kind.label, outcome=Release.label)
        return [do.AddToCounter(m.TASKS_PROCESSED, (entry.queue, "", Release.label)), released]
    counted = do.AddToCounter(m.TASKS_RECOVERED, (entry.queue, "child_exit"))
    return [counted, do.warning(log_events.TASK_RECOVERED, **fields)]


def _set_aside(entry: Entry, request: do.ReapOwner) -> list[do.Effect]:
    reason = AT_MOST_ONCE if entry.is_marked_started else CRASHED
    name = request.name_of(entry.id)
    return [
        do.AddToCounter(m.TASKS_DEAD, (entry.queue, name, reason)),
        do.AddToCounter(m.TASKS_PROCESSED, (entry.queue, name, DeadOutcome.label)),
        do.error(log_events.TASK_DEAD, **_fields(entry, request), reason=reason),
    ]


def _fields(entry: Entry, request: do.ReapOwner) -> dict[str, object]:
    fields: dict[str, object] = {"task_id": entry.id, "queue": entry.queue, "owner": request.owner}
    record = dict(request.blame.ran).get(entry.id)
    if record is not None:
        fields["task"] = request.name_of(entry.id)
        if record and request.blame.crash is not None:
            fields["cause"] = request.blame.crash.label
    return {**fields, "crashes": entry.crashes}


# An attempt that reaches the hard time limit has failed, as if it had raised an exception. Before a worker calls a
# task, it decides what happens in this case, and stores the decision in its slot as the kill policy.


def settlements_of(death: Death) -> tuple[Settlement, ...]:
    """Return the outcomes of the tasks that reached their hard time limit, or an empty tuple if the child died for
    another reason."""
    if death.reason is not Reason.TIMEOUT:
        return ()
    return tuple(found for task in death.blamed_tasks if (found := _settlement_of(death, task)) is not None)


def _settlement_of(death: Death, task: TaskInSlot) -> Settlement | None:
    kill_policy = KillPolicy.from_word(task.kill_policy)
    if not kill_policy.counts_as_failure:
        return None
    try:
        entry = parse_entry(task.entry)
    except (ValueError, KeyError):  # The task has overwritten the entry in the slot.
        return None
    record = death_record_of(death, task, TIME_LIMIT)
    outcome = DeadOutcome(record) if kill_policy.retry_us is None else RetryOutcome(kill_policy.retry_us, record)
    return Settlement(entry, outcome)


def report_over_limit(settlement: Settlement, request: do.ReapOwner) -> Iterator[do.Effect]:
    """Log and count a task that reached its hard time limit, as a worker does for any failed attempt."""
    entry = settlement.entry
    outcome = settlement.outcome
    task = request.name_of(entry.id)
    queue = entry.queue
    fields = {"task_id": entry.id, "task": task, "queue": queue, "owner": request.owner, "attempt": entry.attempt}
    if isinstance(outcome, RetryOutcome):
        yield do.AddToCounter(m.TASKS_PROCESSED, (queue, task, outcome.label))
        yield do.AddToCounter(m.TASK_RETRIES, (queue, task))
        seconds = outcome.delay_us / MICROSECONDS
        yield do.warning(log_events.TASK_RETRIED, **fields, reason=TIME_LIMIT, retry_in_seconds=seconds)
    else:
        yield do.AddToCounter(m.TASKS_PROCESSED, (queue, task, outcome.label))
        yield do.AddToCounter(m.TASKS_DEAD, (queue, task, TIME_LIMIT))
        yield do.error(log_events.TASK_DEAD, **fields, reason=TIME_LIMIT)
