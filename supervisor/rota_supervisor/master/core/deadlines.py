"""Deadlines: when a child is to be killed, its task to be interrupted, and the loop to look next. Pure.

1. Whoever starts has boot_seconds. Outside of a task a child beats within beat_seconds; inside one the task's own
   time limit rules. Who is stopped has beat_seconds, whatever it does; a poller and an exporter less.
2. Who was told to leave has beat_seconds to begin with it, from the end of the task it was told in: a task may have put
   another handler in place of ours, and its process would work on for ever.
3. When the fleet leaves there is one deadline for all of a pool; while Redis is away a sooner one for those that have
   nothing in hand, as what they wait for may not come.
4. Before a child is killed for what it did, it is asked for its stack, and has DUMP_SECONDS to write it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import AT_WORK, STARTING, UNSEEN, Child, ChildState
from rota_supervisor.master.core.desired import Desired
from rota_supervisor.master.core.reasons import Reason

HARD_LIMIT_GRACE_SECONDS: Final = 1.0  # what a task gets beyond its hard limit
STOPPED_SECONDS: Final = 0.5  # of who is missed at once; with tick and start another is there within 2 s
DUMP_SECONDS: Final = 0.1  # a stack takes 0.7 ms, and longer on a machine that has too much to do
SHORTEST_TICK_SECONDS: Final = 0.1  # however short a soft limit is, no more than ten looks a second are made for it

PoolName = tuple[Role, str]
_NO_DEADLINE: Final = (math.inf, Reason.STOP)
_MISSED_AT_ONCE: Final = frozenset({Role.POLLER, Role.EXPORTER})  # nothing is promoted, no probe is answered meanwhile
URGENT_SECONDS: Final = 65.0  # a worker rings again for a soft limit that it has not met for 60 s


def leave_times(desired: Desired) -> dict[PoolName, float]:
    """When the pools that are to leave must have left."""
    return {target.name: target.leave_by for target in desired.targets if target.leave_by < math.inf}


def deadline(child: Child, desired: Desired, leave_times: Mapping[PoolName, float]) -> tuple[float, Reason]:
    """The first instant after which it is killed, and for what."""
    state = child.state
    if state in UNSEEN:
        return _NO_DEADLINE
    if child.busy:
        found = child.task_until + HARD_LIMIT_GRACE_SECONDS, Reason.TIMEOUT
    elif state in STARTING:
        found = max(child.asked_at, desired.awake_since) + desired.boot_seconds, Reason.BOOT
    else:
        found = max(child.beat_at, desired.awake_since) + desired.beat_seconds, Reason.HUNG
    if child.stopped_at is not None:
        found = min(found, (child.stopped_at + patience(child.role, desired.beat_seconds), Reason.HUNG))
    if state is ChildState.DRAINING:
        found = min(found, (max(child.unheard_since, desired.awake_since) + desired.beat_seconds, Reason.STOP))
    leave_by = leave_times.get((child.role, child.pool))
    if leave_by is not None:
        found = min(found, (leave_by if child.in_hand else min(leave_by, desired.idle_leave_by), Reason.STOP))
    return found


def patience(role: Role, beat_seconds: float) -> float:
    """How long a child of this role may be stopped."""
    return min(beat_seconds, STOPPED_SECONDS) if role in _MISSED_AT_ONCE else beat_seconds


def can_be_dumped(child: Child, reason: Reason) -> bool:
    """Whether it is asked for its stack before it is killed. One that is stopped could not answer."""
    return reason.facts.asks_for_stack and child.has_stack and child.pid > 0 and child.stopped_at is None


def is_to_be_interrupted(child: Child, now: float) -> bool:
    """Whether its task is over its soft limit and was not interrupted for that. A task that beats gets a new limit."""
    return child.busy and child.state in AT_WORK and now > child.soft_until != child.interrupted_for


def next_look(children: Iterable[Child], desired: Desired, now: float) -> float:
    """The next instant, of those still to come, after which a plan may have something to do."""
    leaving = leave_times(desired)
    tick = TICK_SECONDS
    times = []
    for child in children:
        at, _ = deadline(child, desired, leaving)
        times.append(at)
        if child.busy:
            times.append(child.soft_until)
        if child.dumped_at > -math.inf:
            times.append(child.dumped_at + DUMP_SECONDS)
        # A task that began after this look is seen no later than the shortest soft limit that it may have.
        tick = min(tick, _shortest_soft_limit(child, now))
    soonest = min((at for at in times if at >= now), default=math.inf)
    return min(soonest, now + max(tick, SHORTEST_TICK_SECONDS))


def _shortest_soft_limit(child: Child, now: float) -> float:
    """The shortest soft limit that its next task may have; `inf` when it has met none of late."""
    # A task that beats has its soft limit anew, however long ago it began.
    is_urgent = child.soft_until < math.inf or now - child.shortest_soft_met_at < URGENT_SECONDS
    return child.shortest_soft_seconds if is_urgent else math.inf
