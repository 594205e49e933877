"""The tick, in which the master plans and performs the actions that are due, after it has handled all pending events.

Every action of a plan updates its child at once, so a second tick at the same time does nothing.
"""

import math
from typing import Final

from rota.telemetry import log_events
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import fleet_status, manager_messages, redis_events, reload_steps, scaling_rounds
from rota_supervisor.master.core.children import LIVE, Child, ChildState, PoolKey
from rota_supervisor.master.core.master_events import Ticked
from rota_supervisor.master.core.plan import Action, NoteBlocked, Start, next_plan_at, plan
from rota_supervisor.master.core.process_settings import first_settings
from rota_supervisor.master.core.start_backoff import StartBackoff
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import Desired, WantedFleet, desired_of

_LATE_TICKS: Final = 3


def ticked(state: MasterState, event: Ticked, now: float) -> list[do.Effect]:
    """Plan the actions that are due, perform them, and note when the next tick is needed."""
    return [] if state.has_ended else _tick(state, event, now)


def _tick(state: MasterState, event: Ticked, now: float) -> list[do.Effect]:
    _note_time(state, event, now)
    recover_backoffs(state, now)
    effects, desired = _perform_plans(state, now)
    if desired is None:  # The first generation cannot work.
        return effects
    state.next_plan_at = next_plan_at(state.children, desired, now)
    return [
        *_register_together(state, effects),
        *redis_events.renew_when_due(state, now),
        *scaling_rounds.exchange_when_due(state, now),
        *fleet_status.show_pools(state, desired.targets),
        *manager_messages.notify(state, now),
        *_leave_when_stopped(state, now),
    ]


def _note_time(state: MasterState, event: Ticked, now: float) -> None:
    if now - state.ticked_at > _LATE_TICKS * TICK_SECONDS:
        # This process was suspended, or the machine slept, so the children may not have had time to run either.
        state.awake_since = now
    state.ticked_at = now
    state.redis_silent_since = event.redis_silent_since


def _perform_plans(state: MasterState, now: float) -> tuple[list[do.Effect], Desired | None]:
    """Plan and perform actions until a plan is empty. Returns the effects, and the desired fleet of the last plan.

    The fleet is None if the first generation cannot work, in which case the master has to leave.
    """
    effects: list[do.Effect] = []
    while True:  # When a child changes, a candidate may take over, which may require further changes.
        effects += [] if state.stop.is_requested else reload_steps.commit_or_refuse(state, now)
        if state.has_ended:
            return effects, None
        effects += _advance_stop(state, now)
        desired = desired_of(state.wanted, state.stop, dict(state.backoffs), state.awake_since)
        actions = plan(desired, state.children, now)
        if not actions:
            return effects, desired
        effects += [effect for action in actions for effect in perform(state, action, now)]


def _leave_when_stopped(state: MasterState, now: float) -> list[do.Effect]:
    state.has_ended = state.stop.is_over(state.children, now)
    return [do.Leave()] if state.has_ended else []


def _advance_stop(state: MasterState, now: float) -> list[do.Effect]:
    before = state.stop
    stop = state.stop.advance(state.children, now, state.redis_silent_since)
    state.stop = stop
    if stop.stage is not before.stage:
        state.leases.hurry()  # The next renewal shows whether Redis replies.
    if before.is_without_redis or not stop.is_without_redis:
        return []
    seconds = round(max(0.0, stop.ends_by(state.children) - now), 1)
    holding_work = state.children.holding_work
    return [do.warning(log_events.FLEET_WAITING, waits_for="redis", seconds=seconds, in_hand=holding_work)]


def wake_at(state: MasterState) -> float:
    """Return when the next tick is due if no event wakes the loop earlier.

    A time before the last tick is ignored. That tick has already handled it, and the loop would otherwise wake at once
    again and again.
    """
    backoffs = [each.wait_until for each in state.backoffs.values()]
    leases = math.inf if state.leases.is_renewing else state.leases.due_at
    rounds = state.scaling_rounds
    scaling = rounds.due_at if rounds.pools and not rounds.is_exchanging else math.inf
    times = [*backoffs, *state.stop.deadlines(state.redis_silent_since), state.next_plan_at, leases, scaling]
    return min((at for at in times if at >= state.ticked_at), default=math.inf)


# Performing an action


def perform(state: MasterState, action: Action, now: float) -> list[do.Effect]:
    """Update the record of the child that an action concerns, and return the effects that carry the action out. If the
    action is Start, the record is created first."""
    if isinstance(action, Start):
        return _start(state, state.children.add(*action, now))
    child = state.children.in_slot(action.slot)
    if isinstance(action, NoteBlocked):
        child.blocked_since = child.heartbeat_at
        return [do.ReportBlocked(child.ref, child.pool, round(now - child.heartbeat_at, 3))]
    child.why = action.reason or child.why
    match action.order:
        case do.Order.INTERRUPT:
            child.interrupted_at = now
        case do.Order.WRITE_STACK:
            child.dumped_at = now
        case do.Order.LEAVE:
            child.move(ChildState.DRAINING)
            child.drain_requested_at = child.drain_awaited_since = now
        case do.Order.KILL if child.state is ChildState.REGISTERING:
            child.move(ChildState.EXITED)
            state.children.forget(child)
            return []
        case do.Order.KILL:
            child.move(ChildState.KILLED)
    return [do.SignalChild(child.ref, action.order)]


def _start(state: MasterState, child: Child) -> list[do.Effect]:
    if child.role is Role.WORKER:
        return [do.Register(((child.slot, child.nonce),), state.config.lease.seconds)]
    config = state.config_of(child.generation) if child.role is Role.ZYGOTE else state.config
    # The rank of a poller is the number of other pollers of its generation on this node.
    others = [other for other in state.children.of(Role.POLLER) if other is not child and other.state in LIVE]
    rank = sum(other.generation == child.generation for other in others)
    return [do.Spawn(child.ref, first_settings(child, config, rank, state.surroundings))]


def _register_together(state: MasterState, effects: list[do.Effect]) -> list[do.Effect]:
    """Replace all Register effects of a tick with a single one, so that one call registers the owners of all workers
    that start."""
    slots = tuple(slot for effect in effects if isinstance(effect, do.Register) for slot in effect.slots)
    others: list[do.Effect] = [effect for effect in effects if not isinstance(effect, do.Register)]
    return [*others, do.Register(slots, state.config.lease.seconds)] if slots else others


# Recovery of the back-offs


def recover_backoffs(state: MasterState, now: float) -> None:
    """Drop the back-offs of generations that are no longer in use. In the back-offs of all other generations, let old
    failures expire."""
    for key, backoff in list(state.backoffs.items()):
        if _is_wanted(key, state.wanted):
            state.backoffs[key] = _proven(state, key, backoff).calmed(now, state.config.restarts)
        else:
            del state.backoffs[key]


def _is_wanted(key: PoolKey, wanted: WantedFleet) -> bool:
    """Whether the pool and generation in `key` are in use now or may come into use, so that their back-off has to be
    kept."""
    generations = wanted.rollout.generations
    match key.role:
        case Role.POLLER:
            return key.generation == wanted.versions.pollers
        case Role.EXPORTER:
            return key.generation == wanted.versions.exporter
        case Role.ZYGOTE:
            return any(key.generation == each.code for each in generations)
        case _:
            return any(key.generation == each.of_pool(key.pool) for each in generations if key.pool in each.pools)


def _proven(state: MasterState, key: PoolKey, backoff: StartBackoff) -> StartBackoff:
    if not backoff.early_exits:  # This is nearly always true.
        return backoff
    for child in state.children.of(key.role, ChildState.READY):
        if child.key == key and child.has_worked:
            backoff = backoff.after_work(child.requested_at)
    return backoff
