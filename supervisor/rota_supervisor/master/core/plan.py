"""Decide what to do about the children: a pure function of what is desired, what is there, and the time.

Performing an action moves its child at once (`performing.perform`), so a second plan after performing is empty.

1. What broke a deadline is killed, see `deadlines`; a moment before it is asked for its stack. From then on it counts
   for nothing but its place. A task over its soft limit is interrupted.
2. In each pool: what is missing is started, as its back-off allows and when there is a zygote to fork from.
3. Children of an older generation are *stale*: one new child is started beside them, and they are drained only
   once a new one is READY, so that never fewer than n - 1 are (1 when n is 1).
4. What is too many is drained: the unready first, then the idle, then the busy.
5. Who asks to be replaced is drained when enough others are READY: of n at most n/8 are away, but one may be;
   and no more than one while there are stale ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import filterfalse, islice
from typing import Final

from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.core.backoff import CALM
from rota_supervisor.master.core.children import ENDING, LIVE, STARTING, Child, ChildState, PoolKey
from rota_supervisor.master.core.deadlines import (
    DUMP_SECONDS,
    PoolName,
    can_be_dumped,
    deadline,
    is_to_be_interrupted,
    leave_times,
)
from rota_supervisor.master.core.desired import (
    Abandon,
    Action,
    Desired,
    Drain,
    Dump,
    Interrupt,
    KillChild,
    Start,
    Target,
)
from rota_supervisor.master.core.reasons import Reason

RECYCLED_SHARE: Final = 8  # one in so many may be away


def plan(desired: Desired, children: Iterable[Child], now: float) -> list[Action]:
    """What to do now."""
    everybody = list(children)
    if desired.at_once:
        return [_end_now(child, Reason.STOP) for child in everybody if child.state not in ENDING]
    looked = _look_at_deadlines(desired, everybody, now)
    actions = looked.actions
    wanted = {target.name for target in desired.targets}
    for name, members in looked.staying.items():
        if name not in wanted:
            actions += _drain(members, Reason.RELOAD)
    free = _free_slots(everybody)
    zygotes = _ready_zygotes(looked.staying)
    for target in desired.targets:
        members = looked.staying.get(target.name, [])
        can_start = target.role is not Role.WORKER or target.forked_from in zygotes
        drains = _plan_drains(target, members, can_start=can_start)
        actions += drains
        if can_start:
            staying = _without(members, drains) + looked.condemned.get(target.name, [])
            actions += _plan_starts(desired, target, staying, free[target.role], now)
    return actions


def _ready_zygotes(pools: "_Pools") -> set[int]:
    """The generations that workers can be forked of."""
    zygotes = (child for (role, _), members in pools.items() if role is Role.ZYGOTE for child in members)
    return {child.generation for child in zygotes if child.state is ChildState.READY}


def _free_slots(children: list[Child]) -> dict[Role, Iterator[int]]:
    """By role, each found when it is asked for: a plan is made at every wake, and hardly any starts a child."""
    taken = {child.slot for child in children}
    return {role: filterfalse(taken.__contains__, slots) for role, slots in RANGES.items()}


def _without(members: list[Child], drains: list[Action]) -> list[Child]:
    leaving = {drain.slot for drain in drains}
    return [child for child in members if child.slot not in leaving] if leaving else members


# Deadlines

_Pools = defaultdict[PoolName, list[Child]]


@dataclass(slots=True)
class _Looked:
    """What follows from deadlines; by pool who stays, and who will be killed when it has written down its stack."""

    actions: list[Action] = field(default_factory=list)
    staying: _Pools = field(default_factory=lambda: defaultdict(list))
    condemned: _Pools = field(default_factory=lambda: defaultdict(list))


def _look_at_deadlines(desired: Desired, everybody: list[Child], now: float) -> _Looked:
    looked, leaving = _Looked(), leave_times(desired)
    for child in everybody:
        broken_at, reason = deadline(child, desired, leaving)
        if now <= broken_at:
            looked.staying[child.role, child.pool].append(child)
            if is_to_be_interrupted(child, now):
                looked.actions.append(Interrupt(child.slot))
            continue
        ending = _ending(child, reason, broken_at, now)
        if not isinstance(ending, KillChild):
            looked.condemned[child.role, child.pool].append(child)
        if ending is not None:
            looked.actions.append(ending)
    return looked


def _ending(child: Child, reason: Reason, broken_at: float, now: float) -> Action | None:
    """What to do with a child that is over its deadline; None while it writes down its stack."""
    if can_be_dumped(child, reason):
        if child.dumped_at <= broken_at:
            return Dump(child.slot)
        if now <= child.dumped_at + DUMP_SECONDS:
            return None
    return _end_now(child, reason)


def _end_now(child: Child, reason: Reason) -> Action:
    return Abandon(child.slot, reason) if child.state is ChildState.REGISTERING else KillChild(child.slot, reason)


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


def _plan_drains(target: Target, members: list[Child], *, can_start: bool) -> list[Action]:
    live = [child for child in members if child.state in LIVE]
    fresh = [child for child in live if child.generation == target.generation]
    stale = [child for child in live if child.generation != target.generation]
    stale_ready = [child for child in stale if child.state is ChildState.READY]
    fresh_ready = [child for child in fresh if child.state is ChildState.READY]
    spare = _spare_stale(target, len(stale_ready), len(fresh_ready))
    surplus = _surplus_fresh(target, fresh, len(stale_ready) - spare)
    drains = [
        *_drain([child for child in stale if child.state is not ChildState.READY], Reason.RELOAD),
        *_drain(_most_dispensable(stale_ready)[:spare], Reason.RELOAD),
        *_drain(_most_dispensable(fresh)[:surplus], Reason.SURPLUS),
    ]
    asking = [child for child in fresh_ready if child.recycle_for is not None] if can_start else []
    if asking:
        staying = _without(live, drains)
        drains += _grant(target, [child for child in asking if child in staying], staying)
    return drains


def _grant(target: Target, asking: list[Child], staying: list[Child]) -> list[Action]:
    """Let those go that ask for it, the oldest first, as far as enough of those that stay are READY."""
    rolling = any(child.generation != target.generation for child in staying)
    most_away = 1 if rolling else max(1, target.count // RECYCLED_SHARE)
    floor = max(target.count - most_away, 1 if rolling else 0)
    granted = max(0, sum(child.state is ChildState.READY for child in staying) - floor)
    oldest = sorted(asking, key=lambda child: (child.asked_at, child.slot))
    return [Drain(child.slot, child.recycle_for) for child in oldest[:granted] if child.recycle_for is not None]


def _surplus_fresh(target: Target, fresh: list[Child], staying: int) -> int:
    """How many fresh children are too many. A count that was greater may have had more started beside stale ones than
    its surge; of these only those that are not READY are surplus."""
    beside_stale = len(fresh) + staying - target.count - target.surge
    unready = sum(child.state is not ChildState.READY for child in fresh)
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
    return sorted(children, key=lambda child: (child.state is ChildState.READY, child.busy, -child.slot))


def _drain(children: Iterable[Child], reason: Reason) -> Iterator[Action]:
    for child in children:
        match child.state:
            case ChildState.REGISTERING:
                yield Abandon(child.slot, reason)
            case ChildState.BOOTING if child.role is Role.ZYGOTE:  # busy importing, it hears nothing
                yield KillChild(child.slot, reason)
            case ChildState.BOOTING | ChildState.READY:
                yield Drain(child.slot, reason)
            case _:  # ASKED: its pid comes within milliseconds; the rest is leaving
                pass
