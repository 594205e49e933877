"""The decision about what to do with each child, as a pure function of the desired fleet, the children, and the time.

When an action is performed (`tick.perform`), its child changes state at once, so the next plan does not repeat it.

Deadlines:

1. A starting child must be ready within boot_seconds. A child that runs no task must send a heartbeat every
   beat_seconds. A child that runs a task has time until the task reaches its hard limit, or until a cancelled task must
   have ended, whichever is earlier. A worker that runs several tasks at once must also send heartbeats. A child that a
   signal has suspended has at most beat_seconds to continue, and a poller or an exporter has less.
2. A child that was ordered to drain must begin within beat_seconds, counted from the end of the task that was running
   when the order was sent. Without this deadline, a process whose task has replaced Rota's signal handler would never
   leave.
3. When the fleet leaves, all children of a pool share one deadline. While Redis is unreachable, children that hold no
   tasks and no outcomes have an earlier deadline, because the reply that they wait for may never come.
4. A child that misses a deadline is killed. If its stack can show why, the stack is requested first, and the child has
   DUMP_SECONDS to write it. During this time, the child still counts as a member of its pool, but it is not drained. A
   task that exceeds its soft limit is interrupted, not killed.

Pools:

1. Missing children are started if the pool's back-off allows it and if there is a zygote to fork from.
2. Children of an older generation are *stale*. One new child is started beside them, and a stale child is drained only
   once a new one is READY. Of n children, at least n - 1 are therefore READY at any time (or 1, if n is 1).
3. Surplus children are drained: first those that are not READY, then idle ones, then busy ones.
4. A child that asks to be replaced is drained when enough other children are READY. Of n children, at most n/8 may be
   missing at once (or one, if n is less than 8). While there are stale children, only one may be missing.
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

RECYCLED_SHARE: Final = 8  # one in 8 children may be missing while it is replaced
HARD_LIMIT_GRACE_SECONDS: Final = 1.0  # a task is killed this long after its hard limit
DUMP_SECONDS: Final = 0.1  # writing a stack takes 0.7 ms, and longer on an overloaded machine
SHORTEST_TICK_SECONDS: Final = 0.1  # at most ten checks a second, even for very short soft limits
BLOCKED_SECONDS: Final = 1.0  # a healthy event loop sends several heartbeats a second
# How long the master checks often because of a short soft limit. If no task has had this limit for 60 s, the worker
# itself wakes the master when such a task starts.
URGENT_SECONDS: Final = 65.0

_Pools = defaultdict[PoolName, list[Child]]


class Start(NamedTuple):
    """Start a child in this slot, which is free."""

    role: Role
    pool: str
    generation: int
    slot: int


class Signal(NamedTuple):
    """Send an order to the child in a slot. If the child has no process yet because its owner is still being
    registered, the order KILL cancels its start."""

    slot: int
    order: Order
    reason: Reason | None = None  # why the child is ordered to leave or is killed


class NoteBlocked(NamedTuple):
    """Report that the event loop of the worker in a slot is blocked."""

    slot: int


Action = Start | Signal | NoteBlocked


def plan(desired: Desired, children: Iterable[Child], now: float) -> list[Action]:
    """Return the actions that the deadlines and the desired fleet require now."""
    all_children = list(children)
    if desired.stop.stage is Stage.AT_ONCE:
        return [Signal(child.slot, Order.KILL, Reason.STOP) for child in all_children if child.state not in ENDING]
    actions, pools, waiting_for_stack = _check_deadlines(desired, all_children, now)
    for name, members in pools.items():
        if name not in desired.by_name:
            actions += _drain(members, Reason.RELOAD)
    # Free slots are searched for only when they are needed, because a plan is made at every wake-up, and hardly any
    # plan starts a child.
    taken = {child.slot for child in all_children}
    free = {role: filterfalse(taken.__contains__, slots) for role, slots in RANGES.items()}
    zygotes = [child for (role, _), members in pools.items() if role is Role.ZYGOTE for child in members]
    forkable = {child.generation for child in zygotes if child.state is ChildState.READY}
    for target in desired.targets:
        members = pools.get(target.name, [])
        can_start = target.role is not Role.WORKER or (target.zygote or target.generation) in forkable
        drains = _plan_drains(target, members, can_start=can_start)
        actions += drains
        if can_start:
            staying = _without(members, drains) + waiting_for_stack.get(target.name, [])
            actions += _plan_starts(desired, target, staying, free[target.role], now)
    return actions


def _without(members: list[Child], drains: list[Signal]) -> list[Child]:
    leaving = {drain.slot for drain in drains}
    return [child for child in members if child.slot not in leaving] if leaving else members


# Deadlines


def _check_deadlines(desired: Desired, all_children: list[Child], now: float) -> tuple[list[Action], _Pools, _Pools]:
    """Check the deadlines of all children. Return the actions for those that missed one or have to be interrupted, the
    children that stay, and the children that will be killed once they have written their stacks.

    Both groups of children are grouped by pool.
    """
    actions: list[Action] = []
    staying = _Pools(list)
    waiting_for_stack = _Pools(list)
    for child in all_children:
        broken_at, reason = deadline(child, desired)
        if now <= broken_at:
            staying[child.role, child.pool].append(child)
            # A task is interrupted only once per soft limit. When it sends a heartbeat, it gets a new limit.
            if child.tasks and child.state in AT_WORK and now > child.soft_until:
                actions.append(Signal(child.slot, Order.INTERRUPT))
            if child.stepping is not None and is_blocked(child, now):
                actions.append(NoteBlocked(child.slot))
        elif can_be_dumped(child, reason) and (child.dumped_at <= broken_at or now <= child.dumped_at + DUMP_SECONDS):
            waiting_for_stack[child.role, child.pool].append(child)
            if child.dumped_at <= broken_at:
                actions.append(Signal(child.slot, Order.WRITE_STACK))
        else:
            actions.append(Signal(child.slot, Order.KILL, reason))
    return actions, staying, waiting_for_stack


def deadline(child: Child, desired: Desired) -> tuple[float, Reason]:
    """Return the time after which the child is killed, and the reason for the kill."""
    state = child.state
    awake_since = desired.awake_since
    beat_seconds = desired.beat_seconds
    if state in UNSEEN:
        return math.inf, Reason.STOP
    hung = max(child.heartbeat_at, awake_since) + beat_seconds, Reason.HUNG
    if child.tasks:
        found = min((child.task_until + HARD_LIMIT_GRACE_SECONDS, Reason.TIMEOUT), (child.kill_at, Reason.CANCELLED))
        if child.concurrency > 1:
            found = min(found, hung)
    elif state in STARTING:
        found = max(child.requested_at, awake_since) + desired.boot_seconds, Reason.BOOT
    else:
        found = hung
    if child.stopped_at is not None:
        found = min(found, (child.stopped_at + child.stop_timeout(beat_seconds), Reason.HUNG))
    if state is ChildState.DRAINING:
        found = min(found, (max(child.drain_awaited_since, awake_since) + beat_seconds, Reason.STOP))
    target = desired.by_name.get((child.role, child.pool))
    if target is not None and target.leave_by < math.inf:
        leave_by = target.leave_by if child.has_work else min(target.leave_by, desired.stop.idle_leave_by)
        found = min(found, (leave_by, Reason.STOP))
    return found


def can_be_dumped(child: Child, reason: Reason) -> bool:
    """Whether to request the child's stack before the kill. A child that a signal has suspended could not write its
    stack."""
    return reason.facts.dumps_stack and child.has_stack and child.pid > 0 and child.stopped_at is None


def is_blocked(child: Child, now: float) -> bool:
    """Whether a running task blocks the worker's event loop and this has not been reported yet."""
    should_beat = child.state in AT_WORK and child.stopped_at is None
    return should_beat and now - child.heartbeat_at > BLOCKED_SECONDS and child.heartbeat_at > child.blocked_since


def next_plan_at(children: Iterable[Child], desired: Desired, now: float) -> float:
    """Return the earliest future time at which a plan may contain an action."""
    tick = TICK_SECONDS
    times = []
    for child in children:
        times.append(deadline(child, desired)[0])
        if child.tasks:
            times.append(child.soft_until)
        if child.dumped_at > -math.inf:
            times.append(child.dumped_at + DUMP_SECONDS)
        # A task may start after this check, and the master must notice the task before its soft limit expires. The
        # master therefore waits no longer than the shortest soft limit of recent tasks. This also holds while such a
        # task runs, because each of its heartbeats restarts its soft limit.
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
    recycling = [child for child in fresh_ready if child.recycle_for is not None] if can_start else []
    if recycling:
        staying = _without(live, drains)
        drains += _recycle(target, [child for child in recycling if child in staying], staying)
    return drains


def _recycle(target: Target, recycling: list[Child], staying: list[Child]) -> list[Signal]:
    """Drain children that have asked to be replaced, oldest first, as long as enough other children stay READY."""
    rolling = any(child.generation != target.generation for child in staying)
    most_away = 1 if rolling else max(1, target.count // RECYCLED_SHARE)
    floor = max(target.count - most_away, 1 if rolling else 0)
    granted = max(0, sum(child.state is ChildState.READY for child in staying) - floor)
    oldest = sorted(recycling, key=lambda child: (child.requested_at, child.slot))
    return [Signal(child.slot, Order.LEAVE, child.recycle_for) for child in oldest[:granted]]


def _surplus_fresh(target: Target, fresh: list[Child], staying: int) -> int:
    """Return how many of the fresh children, which are those of the pool's new generation, are too many and have to
    leave.

    Fresh children beyond the target are too many. If the target was lowered during a rollout, the fresh children may
    also be too many together with the `staying` children of older generations. In that case, only fresh children that
    are not READY have to leave.
    """
    beside_stale = len(fresh) + staying - target.count - target.surge
    unready = sum(child.state is not ChildState.READY for child in fresh)
    return max(0, len(fresh) - target.count, min(unready, beside_stale))


def _spare_stale(target: Target, stale_ready: int, fresh_ready: int) -> int:
    """Return how many READY children of older generations can leave now."""
    if target.surge == 0:  # There is no slot for a second child, so the old child leaves first.
        return stale_ready
    if fresh_ready == 0:
        return max(0, stale_ready - target.count)
    floor = min(target.count, max(1, target.count - 1))
    return max(0, min(stale_ready, stale_ready + fresh_ready - floor))


def _most_dispensable(children: list[Child]) -> list[Child]:
    return sorted(children, key=lambda child: (child.state is ChildState.READY, child.busy, -child.slot))


def _drain(children: Iterable[Child], reason: Reason) -> Iterator[Signal]:
    """Yield the orders that make these children leave. A REQUESTED child is skipped until its pid is known, which takes
    milliseconds."""
    for child in children:
        # A zygote that imports modules cannot handle an order to leave.
        is_importing = child.state is ChildState.BOOTING and child.role is Role.ZYGOTE
        if child.state is ChildState.REGISTERING or is_importing:
            yield Signal(child.slot, Order.KILL, reason)
        elif child.state in (ChildState.BOOTING, ChildState.READY):
            yield Signal(child.slot, Order.LEAVE, reason)
