"""Decide what to do about the children: a pure function of what is desired, what is there, and the time.

Performing an action moves its child at once (`tick.perform`), so a second plan after performing is empty.

Deadlines:

1. Whoever starts has boot_seconds. Outside of a task a child beats within beat_seconds; inside one the task's own
   time limit rules, and what was given to one that was cancelled. A worker that runs several has to beat as well. Who
   is stopped has beat_seconds, whatever it does; a poller and an exporter less.
2. Who was told to drain has beat_seconds to begin, from the end of the task in which it was told: a task may have put
   another handler in place of ours, and its process would work on for ever.
3. When the fleet leaves there is one deadline for all of a pool; while Redis is away a sooner one for those that have
   nothing in hand, as what they wait for may not come.
4. Who broke a deadline is killed. If that was for what it did, it is asked for its stack first, and has DUMP_SECONDS to
   write it; from then on it counts for nothing but its place. A task over its soft limit is interrupted.

Pools:

1. What is missing is started, as the pool's back-off allows and when there is a zygote to fork from.
2. Children of an older generation are *stale*: one new child is started beside them, and they are drained only
   once a new one is READY, so that never fewer than n - 1 are (1 when n is 1).
3. What is too many is drained: the unready first, then the idle, then the busy.
4. Who asks to be replaced is drained when enough others are READY: of n at most n/8 are away, but one may be;
   and no more than one while there are stale ones.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import filterfalse, islice
from typing import Final, NamedTuple

from rota_supervisor.layout import RANGES, TICK_SECONDS, Role
from rota_supervisor.master.core.children import AT_WORK, ENDING, LIVE, STARTING, UNSEEN, Child, ChildState
from rota_supervisor.master.core.effects import Order
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.start_backoff import CALM
from rota_supervisor.master.core.targets import Desired, PoolName, Stage, Target

RECYCLED_SHARE: Final = 8  # one in so many may be away
HARD_LIMIT_GRACE_SECONDS: Final = 1.0  # what a task gets beyond its hard limit
DUMP_SECONDS: Final = 0.1  # a stack takes 0.7 ms, and longer on a machine that has too much to do
SHORTEST_TICK_SECONDS: Final = 0.1  # however short a soft limit is, no more than ten looks a second are made for it
BLOCKED_SECONDS: Final = 1.0  # a loop beats several times a second
URGENT_SECONDS: Final = 65.0  # a worker rings again for a soft limit that it has not met for 60 s

_Pools = defaultdict[PoolName, list[Child]]


class Start(NamedTuple):
    """Begin a child in a free slot."""

    role: Role
    pool: str
    generation: int
    slot: int


class Signal(NamedTuple):
    """Signal an order to the child in a slot. `reason`: why it is to leave, or is killed. KILL gives up a child without
    a process."""

    slot: int
    order: Order
    reason: Reason | None = None


class TellBlocked(NamedTuple):
    """Report the worker in a slot, whose loop does not come round."""

    slot: int


Action = Start | Signal | TellBlocked


def plan(desired: Desired, children: Iterable[Child], now: float) -> list[Action]:
    """What to do now."""
    everybody = list(children)
    if desired.stop.stage is Stage.AT_ONCE:
        return [Signal(child.slot, Order.KILL, Reason.STOP) for child in everybody if child.state not in ENDING]
    actions, pools, condemned = _look_at_deadlines(desired, everybody, now)
    for name, members in pools.items():
        if name not in desired.by_name:
            actions += _drain(members, Reason.RELOAD)
    # Each free slot is found when it is asked for: a plan is made at every wake, and hardly any starts a child.
    taken = {child.slot for child in everybody}
    free = {role: filterfalse(taken.__contains__, slots) for role, slots in RANGES.items()}
    zygotes = [child for (role, _), members in pools.items() if role is Role.ZYGOTE for child in members]
    forkable = {child.generation for child in zygotes if child.state is ChildState.READY}
    for target in desired.targets:
        members = pools.get(target.name, [])
        can_start = target.role is not Role.WORKER or (target.zygote or target.generation) in forkable
        drains = _plan_drains(target, members, can_start=can_start)
        actions += drains
        if can_start:
            staying = _without(members, drains) + condemned.get(target.name, [])
            actions += _plan_starts(desired, target, staying, free[target.role], now)
    return actions


def _without(members: list[Child], drains: list[Signal]) -> list[Child]:
    leaving = {drain.slot for drain in drains}
    return [child for child in members if child.slot not in leaving] if leaving else members


# Deadlines


def _look_at_deadlines(desired: Desired, everybody: list[Child], now: float) -> tuple[list[Action], _Pools, _Pools]:
    """What follows from deadlines; by pool who stays, and who will be killed when it has written down its stack."""
    actions: list[Action] = []
    staying, condemned = _Pools(list), _Pools(list)
    for child in everybody:
        broken_at, reason = deadline(child, desired)
        if now <= broken_at:
            staying[child.role, child.pool].append(child)
            # Once for each soft limit: a task that beats gets a new one.
            if child.tasks and child.state in AT_WORK and now > child.soft_until:
                actions.append(Signal(child.slot, Order.INTERRUPT))
            if child.stepping is not None and is_blocked(child, now):
                actions.append(TellBlocked(child.slot))
        elif can_be_dumped(child, reason) and (child.dumped_at <= broken_at or now <= child.dumped_at + DUMP_SECONDS):
            condemned[child.role, child.pool].append(child)
            if child.dumped_at <= broken_at:
                actions.append(Signal(child.slot, Order.WRITE_STACK))
        else:
            actions.append(Signal(child.slot, Order.KILL, reason))
    return actions, staying, condemned


def deadline(child: Child, desired: Desired) -> tuple[float, Reason]:
    """The first instant after which it is killed, and for what."""
    state, awake_since, beat_seconds = child.state, desired.awake_since, desired.beat_seconds
    if state in UNSEEN:
        return math.inf, Reason.STOP
    hung = max(child.beat_at, awake_since) + beat_seconds, Reason.HUNG
    if child.tasks:
        found = min((child.task_until + HARD_LIMIT_GRACE_SECONDS, Reason.TIMEOUT), (child.kill_at, Reason.CANCELLED))
        if child.places > 1:
            found = min(found, hung)
    elif state in STARTING:
        found = max(child.asked_at, awake_since) + desired.boot_seconds, Reason.BOOT
    else:
        found = hung
    if child.stopped_at is not None:
        found = min(found, (child.stopped_at + child.patience(beat_seconds), Reason.HUNG))
    if state is ChildState.DRAINING:
        found = min(found, (max(child.drain_awaited_since, awake_since) + beat_seconds, Reason.STOP))
    target = desired.by_name.get((child.role, child.pool))
    if target is not None and target.leave_by < math.inf:
        leave_by = target.leave_by if child.in_hand else min(target.leave_by, desired.stop.idle_leave_by)
        found = min(found, (leave_by, Reason.STOP))
    return found


def can_be_dumped(child: Child, reason: Reason) -> bool:
    """Whether it is asked for its stack before it is killed. One that is stopped could not answer."""
    return reason.facts.asks_for_stack and child.has_stack and child.pid > 0 and child.stopped_at is None


def is_blocked(child: Child, now: float) -> bool:
    """Whether the step of a task that is taken keeps its loop from coming round, which was not reported yet."""
    could_beat = child.state in AT_WORK and child.stopped_at is None
    return could_beat and now - child.beat_at > BLOCKED_SECONDS and child.beat_at > child.blocked_since


def next_look(children: Iterable[Child], desired: Desired, now: float) -> float:
    """The next instant, of those still to come, after which a plan may have something to do."""
    tick, times = TICK_SECONDS, []
    for child in children:
        times.append(deadline(child, desired)[0])
        if child.tasks:
            times.append(child.soft_until)
        if child.dumped_at > -math.inf:
            times.append(child.dumped_at + DUMP_SECONDS)
        # A task that began after this look is seen no later than the shortest soft limit that it may have: that of late
        # tasks, and of one that beats, which has its soft limit anew, however long ago it began.
        if child.soft_limits or now - child.shortest_soft_met_at < URGENT_SECONDS:
            tick = min(tick, child.shortest_soft_seconds)
    soonest = min((at for at in times if at >= now), default=math.inf)
    return min(soonest, now + max(tick, SHORTEST_TICK_SECONDS))


# One pool


def _plan_starts(
    desired: Desired, target: Target, members: list[Child], free: Iterator[int], now: float
) -> Iterator[Start]:
    live = [child for child in members if child.state in LIVE]
    fresh = [child for child in live if child.generation == target.generation]
    missing = target.count - len(fresh)
    if len(fresh) < len(live):
        missing = min(missing, target.count + target.surge - len(live))
    backoff = desired.backoffs.get(target.key, CALM)
    allowance = backoff.allowance(now, sum(child.state in STARTING for child in fresh))
    if allowance is not None:
        missing = min(missing, allowance)
    for slot in islice(free, max(0, missing)):
        yield Start(target.role, target.pool, target.generation, slot)


def _plan_drains(target: Target, members: list[Child], *, can_start: bool) -> list[Signal]:
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
        drains += _recycle(target, [child for child in asking if child in staying], staying)
    return drains


def _recycle(target: Target, asking: list[Child], staying: list[Child]) -> list[Signal]:
    """Let those go that ask for it, the oldest first, as far as enough of those that stay are READY."""
    rolling = any(child.generation != target.generation for child in staying)
    most_away = 1 if rolling else max(1, target.count // RECYCLED_SHARE)
    floor = max(target.count - most_away, 1 if rolling else 0)
    granted = max(0, sum(child.state is ChildState.READY for child in staying) - floor)
    oldest = sorted(asking, key=lambda child: (child.asked_at, child.slot))
    return [Signal(child.slot, Order.LEAVE, child.recycle_for) for child in oldest[:granted]]


def _surplus_fresh(target: Target, fresh: list[Child], staying: int) -> int:
    """Return how many fresh children are too many. Beside stale ones there may be more fresh ones than allowed by
    `surge`, if the pool's count was lowered since; of these only those that are not READY are too many."""
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


def _drain(children: Iterable[Child], reason: Reason) -> Iterator[Signal]:
    """Have children leave. One that is ASKED is left alone: its pid comes within milliseconds."""
    for child in children:
        is_importing = child.state is ChildState.BOOTING and child.role is Role.ZYGOTE  # it hears nothing
        if child.state is ChildState.REGISTERING or is_importing:
            yield Signal(child.slot, Order.KILL, reason)
        elif child.state in (ChildState.BOOTING, ChildState.READY):
            yield Signal(child.slot, Order.LEAVE, reason)
