"""Deadlines: which children must write their stack and are killed, which are interrupted, and when the loop checks
next.
"""

import math
from dataclasses import replace

import pytest

from rota.child.slot_record import TaskTimes
from rota.durations import NANOSECONDS
from rota_supervisor.config.model import Config
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import Child, Children, ChildState
from rota_supervisor.master.core.effects import Order, ReportBlocked
from rota_supervisor.master.core.plan import (
    BLOCKED_SECONDS,
    DUMP_SECONDS,
    HARD_LIMIT_GRACE_SECONDS,
    SHORTEST_TICK_SECONDS,
    URGENT_SECONDS,
    Action,
    NoteBlocked,
    Signal,
    next_plan_at,
    plan,
)
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.targets import Desired, Stage, Stop, Target
from rota_supervisor.master.core.tick import perform
from support.cores import Core, drain, kill

POOL = "mail"
SLOT = 8
BOOT = 60.0
BEAT = 30.0
TARGETS = (Target(Role.ZYGOTE, "generation-1", 1, 1, surge=0), Target(Role.WORKER, POOL, 1, 1))
DUMP = Signal(SLOT, Order.WRITE_STACK)
INTERRUPT = Signal(SLOT, Order.INTERRUPT)
DESIRED = Desired(TARGETS, boot_seconds=BOOT, beat_seconds=BEAT)


class Watched:
    """A fleet of one worker, for which a test plans the master's actions as time passes."""

    def __init__(self, state: ChildState = ChildState.READY, *, has_stack: bool = True) -> None:
        self.core = Core(Config())
        self.fleet = self.core.state.children
        self.child = Child(Role.WORKER, POOL, 1, SLOT, 1, state, 0.0, pid=4711, ready_at=0.0, has_stack=has_stack)
        self.fleet._by_slot[SLOT] = self.child
        self.desired = DESIRED

    def runs(self, *, until: float = 0.0, soft_until: float = 0.0, task_index: int = 0) -> None:
        """Let the worker run a task with these deadlines. A worker can run several tasks at once, each under its own
        index. The new task replaces the one at `task_index`, and all others continue.
        """
        others = [task for task in self.child.tasks if task.task_index != task_index]
        task = TaskTimes(1, round(until * NANOSECONDS), round(soft_until * NANOSECONDS), 1, task_index)
        self.child.runs((*others, task))

    def step(self, now: float) -> list[Action]:
        """Return the actions that are planned for the worker at this time, and perform them. Check that planning again
        returns no action.
        """
        actions = plan(self.desired, self.fleet, now)
        done = [action for action in actions if action.slot == SLOT]
        for action in done:
            perform(self.core.state, action, now)
        assert [action for action in plan(self.desired, self.fleet, now) if action.slot == SLOT] == []
        return done

    def looks_next(self, now: float) -> float:
        return next_plan_at(self.fleet, self.desired, now)


# The stack is requested before the kill


@pytest.mark.parametrize(
    ("state", "busy", "over", "reason"),
    [
        (ChildState.BOOTING, False, BOOT, Reason.BOOT),
        (ChildState.READY, False, BEAT, Reason.HUNG),
        (ChildState.READY, True, 5.0 + HARD_LIMIT_GRACE_SECONDS, Reason.TIMEOUT),
        (ChildState.DRAINING, True, 5.0 + HARD_LIMIT_GRACE_SECONDS, Reason.TIMEOUT),
    ],
)
def test_a_child_over_a_deadline_writes_its_stack_before_the_kill(
    state: ChildState, busy: bool, over: float, reason: Reason
) -> None:
    watched = Watched(state)
    if busy:
        watched.runs(until=5.0)
    assert watched.step(over) == []
    assert watched.step(over + 0.01) == [DUMP]
    assert watched.step(over + 0.01 + DUMP_SECONDS) == []
    assert watched.step(over + 0.02 + DUMP_SECONDS) == [kill(SLOT, reason)]


def test_a_child_that_cannot_write_its_stack_is_killed_at_once() -> None:
    assert Watched(has_stack=False).step(BEAT + 0.01) == [kill(SLOT, Reason.HUNG)]
    stopped = Watched()
    stopped.child.stopped_at = 1.0
    assert stopped.step(BEAT + 1.01) == [kill(SLOT, Reason.HUNG)]
    unborn = Watched(ChildState.REQUESTED)
    unborn.child.pid = 0
    assert unborn.step(BOOT + 0.01) == [kill(SLOT, Reason.BOOT)]


def test_immediate_stops_and_expired_drains_kill_without_a_stack() -> None:
    watched = Watched()
    watched.desired = replace(DESIRED, stop=Stop(Stage.AT_ONCE))
    assert watched.step(BEAT + 0.01) == [kill(SLOT, Reason.STOP)]
    leaving = Watched(ChildState.DRAINING)
    leaving.desired = replace(DESIRED, targets=(Target(Role.WORKER, POOL, 0, 1, leave_by=5.0),))
    assert leaving.step(5.1) == [kill(SLOT, Reason.STOP)]


def test_a_child_that_recovers_while_writing_its_stack_is_not_killed() -> None:
    watched = Watched()
    watched.runs(until=5.0)
    assert watched.step(6.01) == [DUMP]
    watched.child.runs(())
    watched.child.heartbeat_at = 6.05
    assert watched.step(7.0) == []
    assert watched.step(6.05 + BEAT + 0.01) == [DUMP]


def test_a_child_writing_its_stack_is_neither_ready_nor_replaced() -> None:
    fleet = Children()
    for slot, generation in ((8, 1), (9, 2)):
        fleet._by_slot[slot] = Child(
            Role.WORKER,
            POOL,
            generation,
            slot,
            slot,
            ChildState.READY,
            0.0,
            pid=slot,
            heartbeat_at=100.0,
            has_stack=True,
        )
    zygotes = [
        Child(Role.ZYGOTE, f"generation-{n}", n, 1 + n, n, ChildState.READY, 0.0, pid=n, heartbeat_at=100)
        for n in (1, 2)
    ]
    for zygote in zygotes:
        fleet._by_slot[zygote.slot] = zygote
    targets = (*(Target(Role.ZYGOTE, zygote.pool, 1, zygote.generation, surge=0) for zygote in zygotes),)
    rolling = Desired((*targets, Target(Role.WORKER, POOL, 1, 2)), BOOT, BEAT)
    assert plan(rolling, fleet, 101.0) == [drain(8, Reason.RELOAD)]
    fleet._by_slot[9].heartbeat_at = 0.0  # the new worker hangs, so it must not replace the old worker
    assert plan(rolling, fleet, 101.0) == [Signal(9, Order.WRITE_STACK)]


# Workers that ignore the order to leave


def test_a_child_that_does_not_start_draining_is_killed() -> None:
    watched = Watched()
    perform(watched.core.state, drain(SLOT, Reason.RELOAD), 100.0)
    watched.child.heartbeat_at = 100.0 + BEAT
    assert watched.step(100.0 + BEAT) == []
    assert watched.step(100.1 + BEAT) == [kill(SLOT, Reason.STOP)]


def test_a_hung_child_is_killed_during_a_drain_too() -> None:
    watched = Watched()
    watched.child.heartbeat_at = 90.0
    perform(watched.core.state, drain(SLOT, Reason.MAX_TASKS), 100.0)
    assert watched.step(90.01 + BEAT) == [DUMP]
    assert watched.step(90.2 + BEAT) == [kill(SLOT, Reason.HUNG)]


def test_a_child_that_has_started_draining_is_not_killed() -> None:
    watched = Watched()
    perform(watched.core.state, drain(SLOT, Reason.RELOAD), 100.0)
    watched.child.drain_awaited_since = math.inf  # the slot shows that the worker has begun to drain
    watched.child.heartbeat_at = 10_000.0
    assert watched.step(10_001.0) == []


# Soft limits


def test_a_task_is_interrupted_once_for_each_soft_limit() -> None:
    watched = Watched()
    watched.runs(soft_until=5.0)
    assert watched.step(5.0) == []
    assert watched.step(5.001) == [INTERRUPT]
    assert watched.step(6.0) == []
    watched.runs(soft_until=7.0)
    assert watched.step(6.5) == []
    assert watched.step(7.001) == [INTERRUPT]


def test_soft_limits_interrupt_tasks_in_draining_but_not_in_killed_workers() -> None:
    watched = Watched(ChildState.DRAINING)
    watched.runs(soft_until=5.0)
    assert watched.step(5.001) == [INTERRUPT]
    killed = Watched(ChildState.KILLED)
    killed.runs(soft_until=5.0)
    assert killed.step(5.001) == []


# Several tasks at once


def several() -> Watched:
    """Return a worker that may run ten tasks at once and has just written a heartbeat."""
    watched = Watched()
    watched.child.concurrency = 10
    watched.child.heartbeat_at = 1000.0
    return watched


def test_the_earliest_hard_limit_of_concurrent_tasks_kills_the_worker() -> None:
    watched = several()
    watched.runs(until=1009.0, task_index=3)
    watched.runs(until=1005.0, task_index=7)
    over = 1005.0 + HARD_LIMIT_GRACE_SECONDS
    assert watched.step(over) == []
    assert watched.step(over + 0.01) == [DUMP]
    assert watched.step(over + 0.02 + DUMP_SECONDS) == [kill(SLOT, Reason.TIMEOUT)]


def test_each_soft_limit_of_several_tasks_causes_one_interrupt() -> None:
    watched = several()
    watched.runs(soft_until=1005.0, task_index=3)
    watched.runs(soft_until=1007.0, task_index=7)
    assert watched.step(1005.001) == [INTERRUPT]
    assert watched.step(1006.9) == []
    assert watched.step(1007.001) == [INTERRUPT]
    watched.runs(soft_until=1009.0, task_index=3)
    assert watched.step(1008.0) == []
    assert watched.step(1009.001) == [INTERRUPT]


def test_soft_limits_exceeded_together_cause_one_interrupt() -> None:
    watched = several()
    watched.runs(soft_until=1005.0, task_index=3)
    watched.runs(soft_until=1005.1, task_index=7)
    assert watched.step(1006.0) == [INTERRUPT]
    assert watched.step(1010.0) == []


def test_a_concurrent_worker_without_heartbeats_is_killed_as_hung() -> None:
    alone = several()
    beside = several()
    alone.child.concurrency = 1
    for watched in (alone, beside):
        watched.runs(task_index=0)
    assert alone.step(1000.01 + BEAT) == []
    assert beside.step(1000.0 + BEAT) == []
    assert beside.step(1000.01 + BEAT) == [DUMP]
    assert beside.step(1000.02 + BEAT + DUMP_SECONDS) == [kill(SLOT, Reason.HUNG)]


def test_each_blocking_of_an_event_loop_is_reported_once() -> None:
    watched = several()
    watched.runs(task_index=3)
    # No task is executing a step, so no task can be blamed for the blocked event loop.
    assert watched.step(1000.0 + BLOCKED_SECONDS + 0.01) == []
    watched.child.stepping = 3
    assert watched.step(1000.0 + BLOCKED_SECONDS) == []
    assert watched.step(1000.0 + BLOCKED_SECONDS + 0.01) == [NoteBlocked(SLOT)]
    assert watched.step(1005.0) == []
    watched.child.heartbeat_at = 1006.0
    assert watched.step(1006.5) == []
    assert watched.step(1007.01) == [NoteBlocked(SLOT)]


def test_the_report_of_a_blocked_event_loop_states_its_duration() -> None:
    watched = several()
    watched.child.stepping = 3
    [report] = perform(watched.core.state, NoteBlocked(SLOT), 1002.5)
    assert report == ReportBlocked(watched.child.ref, POOL, 2.5)


# The time of the next check


def test_the_master_wakes_at_the_next_deadline_of_its_children() -> None:
    watched = Watched()
    watched.runs(until=0.9, soft_until=0.5)
    assert watched.looks_next(0.0) == 0.5
    assert watched.looks_next(0.5) == 0.5
    assert watched.looks_next(0.6) == 0.6 + TICK_SECONDS
    assert watched.looks_next(1.0) == 0.9 + HARD_LIMIT_GRACE_SECONDS


def test_the_master_wakes_when_the_time_to_write_a_stack_ends() -> None:
    watched = Watched()
    assert watched.step(BEAT + 0.01) == [DUMP]
    assert watched.looks_next(BEAT + 0.01) == BEAT + 0.01 + DUMP_SECONDS


def test_a_passed_deadline_does_not_wake_the_master() -> None:
    killed = Watched(ChildState.KILLED)
    killed.runs(until=1.0, soft_until=1.0)
    killed.child.dumped_at = 1.0
    assert killed.looks_next(5.0) == 5.0 + TICK_SECONDS


def test_after_a_short_soft_limit_the_master_wakes_more_often() -> None:
    watched = Watched()
    watched.child.shortest_soft_seconds = 0.3
    watched.child.shortest_soft_met_at = 0.0
    assert watched.looks_next(1.0) == 1.3
    watched.child.shortest_soft_seconds = 0.001
    assert watched.looks_next(1.0) == 1.0 + SHORTEST_TICK_SECONDS


def test_the_master_forgets_a_short_soft_limit_that_is_no_longer_in_use() -> None:
    watched = Watched()
    watched.child.shortest_soft_seconds = 0.5
    watched.child.shortest_soft_met_at = 2.0
    watched.desired = replace(DESIRED, beat_seconds=1000.0)
    late = 3.0 + URGENT_SECONDS
    assert watched.looks_next(late) == late + TICK_SECONDS
    watched.runs(soft_until=late + 500.0)
    assert watched.looks_next(late) == late + 0.5
    watched.child.runs(())
    watched.child.shortest_soft_met_at = URGENT_SECONDS
    assert watched.looks_next(late) == late + 0.5
