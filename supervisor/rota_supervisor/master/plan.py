"""Decide what to do about the children: a pure function of what is desired, what is there, and the time.

Performing an action moves its child at once (`fleet.Fleet.apply`), so a second plan after performing is empty.

1. What broke a deadline is killed: boot, beat, hard task limit, stopped, leaving.
2. In each pool: what is missing is started, as its back-off allows and when there is a zygote to fork from.
3. Children of an older generation are *stale*: one new child is started beside them, and they are drained only
   once a new one is READY, so that never fewer than n - 1 are (1 when n is 1).
4. What is too many is drained: the unready first, then the idle, then the busy.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import filterfalse, islice
from typing import Final

from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.backoff import CALM, Backoff
from rota_supervisor.master.children import LIVE, STARTING, Child, PoolKey, Reason, State

HARD_LIMIT_GRACE_SECONDS: Final = 1.0  # what a task gets beyond its hard limit
STOPPED_POLLER_SECONDS: Final = 0.5  # nothing is promoted meanwhile; with tick and start another is there within 2 s


@dataclass(frozen=True, slots=True)
class Target:
    """One pool as it should be. `surge`: how many may be started beside stale ones. `leave_by`: when all that
    is left of it is killed."""

    role: Role
    pool: str
    count: int
    generation: int
    surge: int = 1
    leave_by: float = math.inf


@dataclass(frozen=True, slots=True)
class Desired:
    """The fleet as it should be. `at_once`: everything is killed now."""

    targets: tuple[Target, ...]
    boot_seconds: float
    beat_seconds: float
    backoffs: Mapping[PoolKey, Backoff] = field(default_factory=dict)
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a child in a free slot."""

    role: Role
    pool: str
    generation: int
    slot: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask a child to leave when it has finished."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for a child and its process group."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give up a child that has no process yet."""

    slot: int
    reason: Reason


Action = Start | Drain | Kill | Abandon


def plan(desired: Desired, children: Iterable[Child], now: float) -> list[Action]:
    """What to do now."""
    everybody = list(children)
    if desired.at_once:
        return [_end_at_once(child) for child in everybody if child.state not in (State.KILLED, State.EXITED)]
    kills = {child.slot: reason for child in everybody if (reason := overdue(child, desired, now))}
    standing = [child for child in everybody if child.slot not in kills]
    actions: list[Action] = [_end_now(child, kills[child.slot]) for child in everybody if child.slot in kills]
    known = {(target.role, target.pool) for target in desired.targets}
    unwanted = [child for child in standing if (child.role, child.pool) not in known]
    actions += _drain(unwanted, Reason.RELOAD)
    free = _free_slots(everybody)
    zygotes = {child.generation for child in standing if child.role is Role.ZYGOTE and child.state is State.READY}
    for target in desired.targets:
        members = [child for child in standing if (child.role, child.pool) == (target.role, target.pool)]
        drains = list(_plan_drains(target, members))
        actions += drains
        leaving = {drain.slot for drain in drains}
        staying = [child for child in members if child.slot not in leaving]
        if target.role is not Role.WORKER or target.generation in zygotes:
            actions += _plan_starts(desired, target, staying, free[target.role], now)
    return actions


def _free_slots(children: list[Child]) -> dict[Role, Iterator[int]]:
    """By role, each found when it is asked for: a plan is made at every wake, and hardly any starts a child."""
    taken = {child.slot for child in children}
    return {role: filterfalse(taken.__contains__, slots) for role, slots in RANGES.items()}


# Deadlines


def overdue(child: Child, desired: Desired, now: float) -> Reason | None:
    """Why the child is to be killed now, or None."""
    if child.state in (State.REGISTERING, State.KILLED, State.EXITED):
        return None
    if now > _leave_by(child, desired):
        return Reason.STOP
    if child.stopped_at is not None and now - child.stopped_at > _patience(child, desired):
        return Reason.HUNG
    if child.state in STARTING:
        return Reason.BOOT if now - max(child.asked_at, child.awake_since) > desired.boot_seconds else None
    if child.busy:
        return Reason.TIMEOUT if now > child.task_until + HARD_LIMIT_GRACE_SECONDS else None
    return Reason.HUNG if now - child.beat_at > desired.beat_seconds else None


def _patience(child: Child, desired: Desired) -> float:
    """How long it may be stopped."""
    limit = desired.beat_seconds
    return min(limit, STOPPED_POLLER_SECONDS) if child.role is Role.POLLER else limit


def _leave_by(child: Child, desired: Desired) -> float:
    for target in desired.targets:
        if (target.role, target.pool) == (child.role, child.pool):
            return target.leave_by
    return math.inf


def _end_at_once(child: Child) -> Action:
    return _end_now(child, Reason.STOP)


def _end_now(child: Child, reason: Reason) -> Action:
    return Abandon(child.slot, reason) if child.state is State.REGISTERING else Kill(child.slot, reason)


# One pool


def _plan_starts(
    desired: Desired, target: Target, members: list[Child], free: Iterator[int], now: float
) -> Iterator[Action]:
    live = [child for child in members if child.state in LIVE]
    fresh = [child for child in live if child.generation == target.generation]
    missing = target.count - len(fresh)
    if len(fresh) < len(live):
        missing = min(missing, target.count + target.surge - len(live))
    backoff = desired.backoffs.get(PoolKey(target.role, target.pool, target.generation), CALM)
    allowance = backoff.allowance(now, sum(child.state in STARTING for child in fresh))
    if allowance is not None:
        missing = min(missing, allowance)
    for slot in islice(free, max(0, missing)):
        yield Start(target.role, target.pool, target.generation, slot)


def _plan_drains(target: Target, members: list[Child]) -> Iterator[Action]:
    live = [child for child in members if child.state in LIVE]
    fresh = [child for child in live if child.generation == target.generation]
    stale = [child for child in live if child.generation != target.generation]
    yield from _drain([child for child in stale if child.state is not State.READY], Reason.RELOAD)
    stale_ready = [child for child in stale if child.state is State.READY]
    fresh_ready = sum(child.state is State.READY for child in fresh)
    spare = _spare_stale(target, len(stale_ready), fresh_ready)
    yield from _drain(_most_dispensable(stale_ready)[:spare], Reason.RELOAD)
    surplus = _surplus_fresh(target, fresh, len(stale_ready) - spare)
    yield from _drain(_most_dispensable(fresh)[:surplus], Reason.SURPLUS)


def _surplus_fresh(target: Target, fresh: list[Child], staying: int) -> int:
    """How many fresh children are too many. A count that was greater may have had more started beside stale ones than
    its surge; of these only those that are not READY are surplus."""
    beside_stale = len(fresh) + staying - target.count - target.surge
    unready = sum(child.state is not State.READY for child in fresh)
    return max(0, len(fresh) - target.count, min(unready, beside_stale))


def _spare_stale(target: Target, stale_ready: int, fresh_ready: int) -> int:
    """How many READY stale children can go now."""
    if target.surge == 0:  # there is no slot for two: the old one leaves first
        return stale_ready
    if fresh_ready == 0:
        return max(0, stale_ready - target.count)
    floor = min(target.count, max(1, target.count - 1))
    return max(0, min(stale_ready, stale_ready + fresh_ready - floor))


def _most_dispensable(children: list[Child]) -> list[Child]:
    return sorted(children, key=lambda child: (child.state is State.READY, child.busy, -child.slot))


def _drain(children: list[Child], reason: Reason) -> Iterator[Action]:
    for child in children:
        match child.state:
            case State.REGISTERING:
                yield Abandon(child.slot, reason)
            case State.BOOTING if child.role is Role.ZYGOTE:  # busy importing, it hears nothing
                yield Kill(child.slot, reason)
            case State.BOOTING | State.READY:
                yield Drain(child.slot, reason)
            case _:  # ASKED: its pid comes within milliseconds; the rest is leaving
                pass
