"""What the master takes from a slot."""

import math
from collections.abc import Callable

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import CurrentTask
from rota.child.slots import Phase, RecycleWish, Slot
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, Reason, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.children.observing import NANOSECONDS, URGENT_SECONDS, observe
from rota_supervisor.master.planning.actions import Drain, Start

SLOT = 8


class Watched:
    """A READY worker, its slot, and the master's look at it."""

    def __init__(self) -> None:
        self.slot: Slot = SlotMemory.create(SLOT + 1).slot(SLOT)
        self.fleet = Fleet()
        self.child: Child = self.fleet.apply(Start(Role.WORKER, "main", 1, SLOT), 0.0)
        self.slot.begin(self.child.nonce)
        for state in (State.ASKED, State.BOOTING, State.READY):
            self.child.move(state)
        self.slot.phase = Phase.IDLE

    def look(self, now: float) -> Child:
        observe(self.child, self.slot, now, 0.0)
        return self.child

    def begin(self, at: float, *, limit: float = 0.0, soft: float = 0.0) -> None:
        begins, *ends = (round(each * NANOSECONDS) for each in (at, at + limit, at + soft))
        deadline_ns, soft_ns = ends[0] if limit else 0, ends[1] if soft else 0
        self.slot.start_task(CurrentTask(b"id queue", "task", begins, deadline_ns, soft_deadline_ns=soft_ns))


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_limits_of_a_task_are_seen_and_gone_when_it_ends(watched: Watched) -> None:
    watched.begin(10.0, limit=5.0, soft=2.0)
    child = watched.look(10.1)
    assert (child.busy, child.task_until, child.soft_until) == (True, 15.0, 12.0)
    watched.slot.extend_task(20 * NANOSECONDS, 17 * NANOSECONDS)
    child = watched.look(11.0)
    assert (child.task_until, child.soft_until) == (20.0, 17.0)
    watched.slot.end_task()
    child = watched.look(12.0)
    assert (child.busy, child.task_until, child.soft_until) == (False, math.inf, math.inf)


def test_the_shortest_soft_limit_is_known_though_its_task_is_over(watched: Watched) -> None:
    assert watched.look(1.0).shortest_soft_seconds == math.inf
    watched.slot.show_soft_limit(NANOSECONDS // 2, 2 * NANOSECONDS)
    assert watched.look(2.0).shortest_soft_seconds == 0.5


def test_a_short_soft_limit_is_forgotten_when_it_was_not_met_for_a_while_and_no_task_may_renew_it(
    watched: Watched,
) -> None:
    watched.begin(2.0, limit=500.0, soft=0.5)
    watched.slot.show_soft_limit(NANOSECONDS // 2, 2 * NANOSECONDS)
    assert watched.look(3.0 + URGENT_SECONDS).shortest_soft_seconds == 0.5
    watched.slot.end_task()
    assert watched.look(3.0 + URGENT_SECONDS).shortest_soft_seconds == math.inf
    watched.slot.show_soft_limit(NANOSECONDS // 2, round(URGENT_SECONDS * NANOSECONDS))
    assert watched.look(3.0 + URGENT_SECONDS).shortest_soft_seconds == 0.5


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(RecycleWish.NONE, None), (RecycleWish.MAX_TASKS, Reason.MAX_TASKS), (RecycleWish.MAX_RSS, Reason.MAX_RSS)],
)
def test_a_wish_is_seen_with_its_reason(watched: Watched, shown: RecycleWish, seen: Reason | None) -> None:
    watched.slot.recycle_wish = shown
    assert watched.look(1.0).wish is seen


def test_a_quiet_worker_is_seen_as_such_and_one_that_begins_quiet_is_ready(watched: Watched) -> None:
    watched.slot.phase = Phase.QUIET
    assert watched.look(1.0).is_quiet
    watched.slot.phase = Phase.IDLE
    assert not watched.look(2.0).is_quiet
    begins = Watched()
    begins.child.state, begins.slot.phase = State.BOOTING, Phase.QUIET
    assert begins.look(1.0).state is State.READY


def _idle(watched: Watched) -> None:
    watched.slot.phase = Phase.IDLE


def _in_the_task_it_was_told_in(watched: Watched) -> None:
    watched.begin(99.0)


def _in_a_later_task(watched: Watched) -> None:
    watched.begin(101.0)


def _leaves(watched: Watched) -> None:
    watched.slot.phase = Phase.DRAINING


@pytest.mark.parametrize(
    ("does", "deaf_since"),
    [(_idle, 100.0), (_in_the_task_it_was_told_in, 110.0), (_in_a_later_task, 100.0), (_leaves, math.inf)],
)
def test_who_was_told_to_leave_is_deaf_until_it_begins_to_but_not_inside_the_task_it_was_told_in(
    watched: Watched, does: Callable[[Watched], None], deaf_since: float
) -> None:
    watched.fleet.apply(Drain(SLOT, Reason.RELOAD), 100.0)
    does(watched)
    assert watched.look(110.0).deaf_since == deaf_since


def test_a_task_begun_after_the_one_it_was_told_in_is_no_excuse(watched: Watched) -> None:
    watched.begin(99.0)
    watched.fleet.apply(Drain(SLOT, Reason.RELOAD), 100.0)
    watched.look(110.0)
    watched.slot.end_task()
    watched.begin(112.0)
    assert watched.look(120.0).deaf_since == 110.0
