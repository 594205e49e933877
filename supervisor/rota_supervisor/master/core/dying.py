"""The end of a child: why it died, what is told of it, what it means for its pool, and what it held given back."""

from datetime import UTC, datetime
from typing import Final

from rota.child.slot_task import UNKNOWN_TASK
from rota.protocol.entry import Entry
from rota.protocol.store import FIRST_HELD, Blame
from rota.protocol.wire import NOTHING
from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import reloading
from rota_supervisor.master.core.account import Circumstances, Death, epitaph_of, fields_of, judge
from rota_supervisor.master.core.backoff import End
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.ending import ProcessEnd
from rota_supervisor.master.core.events import Died, OwnerRetired
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.settings import NO_TIERS
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.stopping import Stage

_EVENTS: Final = {
    Role.WORKER: names.WORKER_EXITED,
    Role.ZYGOTE: names.ZYGOTE_EXITED,
    Role.POLLER: names.POLLER_EXITED,
    Role.EXPORTER: names.EXPORTER_EXITED,
}


def died(state: MasterState, event: Died, now: float) -> list[Effect]:
    """The process of a child was reaped."""
    child = state.children.get(event.slot, event.nonce)
    if child is None:
        return []
    death = judge(child, event.ending, _circumstances(state, child, event, now))
    child.move(ChildState.EXITED)
    child.in_hand = event.task is not None or event.outcomes != NOTHING
    effects = _tell(state, death, now)
    _feed_backoff(state, child, _end_of(death, event, now), death.reason)
    if not state.stop.is_asked and child.why is not Reason.SURPLUS:
        effects.append(do.AddToCounter(m.PROCESS_RESTARTS, (child.role.value, death.reason.label)))
    if child.ready_at is None:
        effects += reloading.died_starting(state, death, now)
    return [*effects, do.CloseChannels(child.ref), *_give_back(state, death, event)]


def not_started(state: MasterState, child: Child, why: str, now: float, *, from_outside: bool = False) -> list[Effect]:
    """A child was to be started, and there is no process. `from_outside`: for no fault of its own."""
    is_expected = child.why is not None and child.why.facts.is_expected
    say = do.info if is_expected else do.error
    said = say(names.FLEET_CALL_FAILED, child=child.role.value, slot=child.slot, error=why)
    child.move(ChildState.EXITED)
    end = End(child.asked_at, now, child.ready_at, explained=True, from_outside=from_outside, words=why)
    _feed_backoff(state, child, end, Reason.BOOT)
    nothing = Circumstances(state.config_of(child.generation).limits, now)
    death = Death(child, Reason.LOST, ProcessEnd(0), nothing)
    return [said, do.CloseChannels(child.ref), *_give_back(state, death, Died(child.slot, child.nonce, death.ending))]


def _circumstances(state: MasterState, child: Child, event: Died, now: float) -> Circumstances:
    return Circumstances(
        state.config_of(child.generation).limits,
        now,
        event.task,
        event.stack,
        leaving=state.stop.is_asked,
        at_once=state.stop.stage is Stage.AT_ONCE,
        without_redis=state.stop.is_without_redis and not child.in_hand,
    )


def _tell(state: MasterState, death: Death, now: float) -> list[Effect]:
    """One event a death. One that nobody wanted is kept, for people who ask for the status."""
    said = fields_of(death)
    if death.reason.facts.is_expected and not death.is_late:
        return [do.info(_event_of(death), **said)]
    state.last_death = {**said, "at": now}
    return [do.warning(_event_of(death), **said)]


def _event_of(death: Death) -> str:
    """Of a worker the name says whether its master ended it."""
    child = death.child
    if child.role is not Role.WORKER or child.why is not death.reason or death.ending.signal_name != "SIGKILL":
        return _EVENTS[child.role]
    return names.WORKER_HUNG if death.reason is Reason.HUNG else names.WORKER_KILLED


# What it means for its pool


def _end_of(death: Death, event: Died, now: float) -> End:
    child = death.child
    return End(
        child.asked_at,
        now,
        child.ready_at,
        explained=death.reason.facts.is_explained,
        from_outside=death.is_from_outside,
        in_task=event.task is not None or not event.slot_is_intact,
        has_worked=child.ready_at is not None and event.has_worked,
        words=death.words,
    )


def _feed_backoff(state: MasterState, child: Child, end: End, reason: Reason) -> None:
    if not any(each is not None and each.facts.is_expected for each in (reason, child.why)):
        state.backoffs[child.key] = state.backoff_of(child.key).after_end(end, state.config.restarts)


# What it held


def _give_back(state: MasterState, death: Death, event: Died) -> list[Effect]:
    """Retire the owner of a dead worker: until that is done its slot stays taken."""
    child = death.child
    if not child.owner:
        return _freed(state, child)
    state.leases.known_lost.discard(child.owner)
    settings = state.settings_of(child)
    tiers = NO_TIERS if settings is None else settings.tiers
    task_id, name = _task_of(event)
    ran = task_id if name else None
    blame = _blame(state, death, ran, event.wall)
    return [do.Retire(child.slot, child.nonce, child.owner, name, blame, event.outcomes, tiers, death.has_left)]


def _task_of(event: Died) -> tuple[str, str]:
    """The id and the name of the task that ran. In a slot that was written over nobody can read them: then the first of
    what the worker held is taken for it."""
    if not event.slot_is_intact:
        return FIRST_HELD, UNKNOWN_TASK
    return ("", "") if event.task is None else (event.task.id, event.task.name)


def _blame(state: MasterState, death: Death, task_id: str | None, wall: float) -> Blame:
    limits = state.config_of(death.child.generation).restarts
    ran: tuple[tuple[str, bytes], ...] = ()
    if task_id is not None and death.is_task_to_blame:
        ran = ((task_id, epitaph_of(death, datetime.fromtimestamp(wall, UTC))),)
    mark = death.reason.facts.mark
    return Blame(ran, crash_limit=limits.crash_limit, loss_limit=limits.loss_limit, crash=mark)


def _freed(state: MasterState, child: Child) -> list[Effect]:
    state.children.forget(child)
    return [do.FreeSlot(child.slot)]


def owner_retired(state: MasterState, event: OwnerRetired, _now: float) -> list[Effect]:
    """What a dead worker held is back in its lanes, and the task that ran is dead if this was its last crash."""
    child = state.children.get(event.asked.slot, event.asked.nonce)
    freed = [] if child is None else _freed(state, child)
    return [*freed, *_counted(event), *_told_of_tasks(event)]


def _counted(event: OwnerRetired) -> list[Effect]:
    """Entries are released if their worker had left, and recovered if it had died."""
    name, counted = event.asked.task_name, []
    for entry in event.retired.requeued:
        released = m.TASKS_PROCESSED, (entry.queue, "", "released")
        recovered = m.TASKS_RECOVERED, (entry.queue, "child_exit")
        counted.append(do.AddToCounter(*(released if event.asked.has_left else recovered)))
    for entry in event.retired.dead:
        counted.append(do.AddToCounter(m.TASKS_DEAD, (entry.queue, name, "crashed")))
        counted.append(do.AddToCounter(m.TASKS_PROCESSED, (entry.queue, name, "dead")))
    return [*counted]


def _told_of_tasks(event: OwnerRetired) -> list[Effect]:
    retired = event.retired
    return [
        *(_told_of(entry, event.asked, is_dead=False) for entry in retired.requeued),
        *(_told_of(entry, event.asked, is_dead=True) for entry in retired.dead),
    ]


def _told_of(entry: Entry, asked: do.Retire, *, is_dead: bool) -> Effect:
    said: dict[str, object] = {"task_id": entry.id, "queue": entry.queue, "owner": asked.owner}
    if entry.id in {task_id for task_id, _ in asked.blame.ran}:
        said |= {"task": asked.task_name, "cause": asked.blame.crash.label}
    said["crashes"] = entry.crashes
    if is_dead:
        return do.error(names.TASK_DEAD, **said, reason="crashed")
    if asked.has_left:
        return do.info(names.TASK_RELEASED, **said, kind=entry.kind.label, outcome="released")
    return do.warning(names.TASK_RECOVERED, **said)
