"""The core's handlers for events in the life of a child: its start, changes in its slot, and tasks of a worker that are
cancelled or held up."""

import math
from typing import Final

from rota.child.slots import Phase, RecycleReason
from rota.durations import NANOSECONDS
from rota.protocol.outcome import settlements_in
from rota.telemetry import log_events
from rota_supervisor import messages
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import child_exit, master_events, redis_events, reload_steps
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import UNSEEN, Child, ChildState, SentCancel
from rota_supervisor.master.core.reasons import RECYCLED
from rota_supervisor.master.core.state import MasterState

_SERVING: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.QUIET})
_REASONS_TO_RECYCLE: Final = {RecycleReason.NONE: None} | {RecycleReason[each.name]: each for each in RECYCLED}

# The start of a child


def owners_registered(state: MasterState, event: master_events.OwnersRegistered, now: float) -> list[do.Effect]:
    """Make the zygote fork each worker whose owner is now registered. If a worker has been given up in the meantime,
    its owner is left alone: it holds no tasks, and its lease expires later."""
    effects: list[do.Effect] = []
    for slot, nonce, owner in event.owners:
        child = state.children.get(slot, nonce)
        if child is not None and child.state is ChildState.REGISTERING:
            child.owner = owner
            effects += _request_worker(state, child, event.sent_ns, now)
    redis_events.hurry_for(state, event.lease_seconds)
    return effects


def _request_worker(state: MasterState, child: Child, renewed_ns: int, now: float) -> list[do.Effect]:
    generation = state.rollout.of(child.generation)
    settings = state.settings_of(child)
    zygotes = state.children.of(Role.ZYGOTE, ChildState.READY)
    zygote = next((each for each in zygotes if generation is not None and each.generation == generation.code), None)
    if zygote is None or settings is None:
        why = "the zygote died or the pool was removed before the worker was requested"
        return child_exit.not_started(state, child, why, now, from_outside=True)
    child.move(ChildState.REQUESTED)
    child.requested_at = now
    child.zygote_nonce = zygote.nonce
    child.concurrency = settings.settings.concurrency
    child.lease_seconds = settings.settings.lease_seconds
    quiet = state.quiet.is_requested
    return [
        do.ForkWorker(
            zygote.ref, child.ref, child.owner, child.pool, settings.text, renewed_ns, quiet, child.concurrency
        )
    ]


def started(state: MasterState, event: master_events.Started, now: float) -> list[do.Effect]:
    """Record the pid of a child that was started. If the kernel refused to start the child, count the child as not
    started."""
    child = state.children.get(event.slot, event.nonce)
    if child is None:
        return []
    child.pid = event.pid
    return child_exit.not_started(state, child, event.error, now) if event.error else []


def zygote_reported(state: MasterState, event: master_events.ZygoteReported, now: float) -> list[do.Effect]:
    """Handle a message from a zygote, or from one of its intermediates, which are the short-lived processes that fork
    workers for it."""
    number = event.generation
    match event.message:
        case messages.Spawned() as spawned:
            return _forked(state, spawned)
        case messages.ForkFailed(slot, nonce, why):
            child = state.children.get(slot, nonce)
            return [] if child is None else _fork_failed(state, child, why, now, from_outside=False)
        case messages.Importing(module):
            state.code_of(number).importing = module
        case messages.Imported(tasks):
            state.code_of(number).tasks.update(tasks)
        case messages.Scheduled(schedule, text):
            state.code_of(number).schedules[schedule] = text
        case messages.Ready(modules, objects):
            return [do.info(log_events.ZYGOTE_READY, generation=number, modules=modules, objects_frozen=objects)]
        case messages.Warned(text):
            return [do.warning(log_events.ZYGOTE_WARNING, generation=number, warning=text)]
        case messages.ImportFailed(module, why, where):
            failed = do.error(log_events.ZYGOTE_FAILED, module=module, error=why, where=where)
            return [
                failed,
                *reload_steps.import_failed(state, number, module, f"{why} ({where})" if where else why, now),
            ]
        case other:
            raise ValueError(f"unexpected message from a zygote: {type(other).__name__}")
    return []


def _forked(state: MasterState, event: messages.Spawned) -> list[do.Effect]:
    """Record the pid of a forked worker.

    If the master decided to kill the worker before its pid was known, it kills the worker now.
    """
    child = state.children.get(event.slot, event.nonce)
    if child is None or child.pid:
        return []
    child.pid = event.pid
    if child.state is ChildState.REQUESTED:
        child.move(ChildState.BOOTING)
    return [do.SignalChild(child.ref, do.Order.KILL)] if child.state is ChildState.KILLED else []


def _fork_failed(state: MasterState, child: Child, why: str, now: float, *, from_outside: bool) -> list[do.Effect]:
    """Count a worker as not started, unless its pid is already known.

    The worker's slot is marked as free at once, before its owner has been reaped, because that may have to wait for
    Redis. If the worker's process still starts later, it finds another nonce in the slot and exits.
    """
    if child.pid or child.state not in (ChildState.REQUESTED, ChildState.KILLED):
        return []
    return [do.FreeSlot(child.slot), *child_exit.not_started(state, child, why, now, from_outside=from_outside)]


def zygote_gone(state: MasterState, event: master_events.ZygoteGone, now: float) -> list[do.Effect]:
    """Handle the end of a zygote. Workers that were requested from it but never reported as forked count as not
    started.

    The zygote's channel may close before its process is reaped. A READY zygote is therefore killed here, because
    otherwise the next plan would request workers from it. A zygote that is still BOOTING is not killed, because its own
    exit code will show why it failed.
    """
    effects: list[do.Effect] = []
    zygote = state.children.get(event.slot, event.nonce)
    if zygote is not None and zygote.state is ChildState.READY:
        zygote.move(ChildState.KILLED)
        effects.append(do.SignalChild(zygote.ref, do.Order.KILL))
    for child in state.children.of(Role.WORKER):
        if child.zygote_nonce == event.nonce:
            effects += _fork_failed(state, child, "its zygote died", now, from_outside=True)
    return effects


def stack_file_made(state: MasterState, event: master_events.StackFileMade, _now: float) -> list[do.Effect]:
    """Record that a child has a stack file, so that the master can request its stack."""
    child = state.children.get(event.slot, event.nonce)
    if child is not None:
        child.has_stack = True
    return []


# The work of a child


def stop_seen(state: MasterState, event: master_events.StopSeen, now: float) -> list[do.Effect]:
    """Record that a signal such as SIGSTOP has suspended a child, or that the child runs again."""
    child = state.children.get(event.slot, event.nonce)
    if child is not None:
        child.stopped_at = now if event.stopped else None
    return []


def slots_read(state: MasterState, event: master_events.SlotsRead, now: float) -> list[do.Effect]:
    """Record changes in the slots of some children."""
    effects: list[do.Effect] = []
    for reading in event.readings:
        child = state.children.get(reading.slot, reading.nonce)
        if child is not None and child.state not in UNSEEN:
            _note(child, reading, now, state.ticked_at)
            if child.state is ChildState.BOOTING and reading.phase in _SERVING:
                effects += _ready(state, child, now)
    return effects


def _ready(state: MasterState, child: Child, now: float) -> list[do.Effect]:
    """Mark a child as READY, which ends the back-off of its pool."""
    child.move(ChildState.READY)
    child.ready_at = now
    state.backoffs[child.key] = state.backoff_of(child.key).after_ready(now)
    return reload_steps.zygote_ready(state, child, now) if child.role is Role.ZYGOTE else []


def _note(child: Child, reading: master_events.SlotReading, now: float, read_before: float) -> None:
    """Copy the contents of a slot into the child's record. `read_before` is the time of the previous reading."""
    heartbeat_at = reading.heartbeat_ns / NANOSECONDS
    # A worker that runs one task at a time sends no heartbeats during the task. Its silence is therefore measured from
    # the last reading in which the task was still running. A worker with several tasks at once sends heartbeats while
    # they run.
    silent_since = read_before if child.busy and child.concurrency == 1 else 0.0
    # A heartbeat time more than one tick in the future cannot be right, so it is ignored.
    child.heartbeat_at = max(
        child.heartbeat_at, silent_since, heartbeat_at if heartbeat_at <= now + TICK_SECONDS else 0.0
    )
    child.runs(reading.tasks)
    child.stepping = reading.stepping
    child.is_quiet = reading.phase is Phase.QUIET
    child.has_worked = reading.has_worked
    if child.role is Role.WORKER:
        child.has_work = child.busy or reading.has_outcomes
        child.recycle_for = _REASONS_TO_RECYCLE[reading.recycle_reason]
        child.shortest_soft_seconds = reading.shortest_soft_ns / NANOSECONDS or math.inf
        child.shortest_soft_met_at = reading.shortest_soft_met_ns / NANOSECONDS
    if child.state is ChildState.DRAINING and not child.has_started_drain:
        _note_drain(child, reading, read_before)


def _note_drain(child: Child, reading: master_events.SlotReading, read_before: float) -> None:
    """Record whether a child that was ordered to drain has begun to drain.

    A worker that runs one task at a time cannot begin to drain before its current task ends.
    """
    child.has_started_drain = reading.phase is Phase.DRAINING
    holds_up = reading.tasks[0] if reading.tasks and child.concurrency == 1 else None
    is_in_same_task = holds_up is not None and holds_up.started_ns / NANOSECONDS <= child.drain_requested_at
    if child.has_started_drain or is_in_same_task:
        child.drain_awaited_since = math.inf
    elif child.drain_awaited_since == math.inf:
        child.drain_awaited_since = max(child.drain_requested_at, read_before)


def claim_held_up(state: MasterState, event: master_events.ClaimHeldUp, _now: float) -> list[do.Effect]:
    """Make the master give the prefetched tasks of a worker back to their lanes, because they wait behind a
    long-running task.

    This is done only once for each long-running task, although the event may be repeated while that task runs.
    """
    child = state.children.get(event.slot, event.nonce)
    held_up = event.held_up
    mark = event.nonce, held_up.task.number
    if child is None or state.returned_for.get(event.slot) == mark:
        return []
    state.returned_for[event.slot] = mark
    finished = settlements_in(*held_up.outcomes)
    tiers = child_exit.tiers_of(state, child)
    return [do.ReturnPrefetched(child.ref, child.owner, held_up.task, finished, tiers)]


def cancel_ordered(state: MasterState, event: master_events.CancelOrdered, now: float) -> list[do.Effect]:
    """Notify a worker that its task was cancelled, and note when to kill the worker if the task does not end.

    The worker is notified only once about each task, although every renewal of its lease reports the cancelled task
    again until the task ends.
    """
    child = state.children.get(event.slot, event.nonce)
    if child is None or child.state in UNSEEN:
        return []
    sent = child.cancels.get(event.task_index)
    was_sent = sent is not None and sent.number == event.number
    if event.kill_after is not None:
        child.cancels[event.task_index] = SentCancel(event.number, event.kill_after, now + event.kill_after)
    elif not was_sent:
        child.cancels[event.task_index] = SentCancel(event.number)
    if was_sent:
        return []
    limit = {} if event.kill_after is None else {"kill_after_seconds": event.kill_after}
    line = do.info(log_events.TASK_CANCEL_REQUESTED, task_id=event.task_id, owner=child.owner, **limit)
    return [line, do.NotifyCancelled(child.ref, event.task_index, event.number)]
