"""How the master reads the slot of a child."""

import math
from collections.abc import Callable

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase, RecycleReason, Slot
from rota.durations import NANOSECONDS
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.master_events import SlotsRead
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.tick import perform
from rota_supervisor.master.shell.loop import SlotReader
from support.cores import Core, drain

SLOT = 8


class Watched:
    """A READY worker, its slot, and the master that reads the slot."""

    def __init__(self) -> None:
        memory = SlotMemory.create(SLOT + 1)
        self.slot: Slot = memory.slot(SLOT)
        self.core = Core(Config())
        self.child = self.core.child(Role.WORKER, SLOT)
        self.slot.assign(self.child.nonce)
        self.slot.phase = Phase.IDLE
        self._reader = SlotReader(memory)

    def read(self, now: float) -> Child:
        self.core.now = now
        readings = self._reader.read([self.child])
        self.core.take(SlotsRead(readings))
        self.core.state.ticked_at = now
        return self.child

    def request_drain(self, now: float) -> None:
        self.core.state.ticked_at = now
        perform(self.core.state, drain(SLOT, Reason.RELOAD), now)

    def start_task(self, at: float, *, limit: float = 0.0, soft: float = 0.0) -> None:
        begins, *ends = (round(each * NANOSECONDS) for each in (at, at + limit, at + soft))
        deadline_ns = ends[0] if limit else 0
        soft_ns = ends[1] if soft else 0
        self.slot.record(0).start(b"id queue", "task", begins, deadline_ns, soft_deadline_ns=soft_ns)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_master_reads_the_time_limits_of_a_task_until_it_ends(watched: Watched) -> None:
    watched.start_task(10.0, limit=5.0, soft=2.0)
    child = watched.read(10.1)
    assert (child.busy, child.task_until, child.soft_until) == (True, 15.0, 12.0)
    watched.slot.record(0).extend(20 * NANOSECONDS, 17 * NANOSECONDS)
    child = watched.read(11.0)
    assert (child.task_until, child.soft_until) == (20.0, 17.0)
    watched.slot.record(0).end()
    child = watched.read(12.0)
    assert (child.busy, child.task_until, child.soft_until) == (False, math.inf, math.inf)


def test_the_master_reads_the_shortest_soft_limit_from_an_idle_slot(watched: Watched) -> None:
    assert watched.read(1.0).shortest_soft_seconds == math.inf
    watched.slot.show_soft_limit(NANOSECONDS // 2, 2 * NANOSECONDS)
    assert watched.read(2.0).shortest_soft_seconds == 0.5


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(RecycleReason.NONE, None), (RecycleReason.MAX_TASKS, Reason.MAX_TASKS), (RecycleReason.MAX_RSS, Reason.MAX_RSS)],
)
def test_a_request_for_recycling_is_read_with_its_reason(
    watched: Watched, shown: RecycleReason, seen: Reason | None
) -> None:
    watched.slot.recycle_reason = shown
    assert watched.read(1.0).recycle_for is seen


def test_a_quiet_worker_is_recognized_and_counts_as_ready(watched: Watched) -> None:
    watched.slot.phase = Phase.QUIET
    assert watched.read(1.0).is_quiet
    watched.slot.phase = Phase.IDLE
    assert not watched.read(2.0).is_quiet
    begins = Watched()
    begins.child.state = ChildState.BOOTING
    begins.slot.phase = Phase.QUIET
    assert begins.read(1.0).state is ChildState.READY


def _idle(watched: Watched) -> None:
    watched.slot.phase = Phase.IDLE


def _in_the_task_of_the_request(watched: Watched) -> None:
    watched.start_task(99.0)


def _in_a_later_task(watched: Watched) -> None:
    watched.start_task(101.0)


def _drains(watched: Watched) -> None:
    watched.slot.phase = Phase.DRAINING


@pytest.mark.parametrize(
    ("does", "awaited_since"),
    [(_idle, 100.0), (_in_the_task_of_the_request, math.inf), (_in_a_later_task, 100.0), (_drains, math.inf)],
)
def test_the_wait_for_a_drain_begins_after_the_current_task(
    watched: Watched, does: Callable[[Watched], None], awaited_since: float
) -> None:
    watched.request_drain(100.0)
    does(watched)
    assert watched.read(110.0).drain_awaited_since == awaited_since


def test_a_later_task_does_not_reset_the_wait_for_a_drain(watched: Watched) -> None:
    watched.start_task(99.0)
    watched.request_drain(100.0)
    watched.read(110.0)
    watched.slot.record(0).end()
    watched.start_task(112.0)
    assert watched.read(120.0).drain_awaited_since == 110.0


def test_the_silence_of_a_child_is_measured_from_when_its_task_was_last_seen(watched: Watched) -> None:
    watched.start_task(10.0)
    watched.read(11.0)
    watched.read(50.0)  # nothing has changed, so there is no event
    watched.slot.record(0).end()
    assert watched.read(51.0).heartbeat_at >= 50.0


def test_an_unchanged_slot_is_read_only_after_a_state_change(watched: Watched) -> None:
    reader = watched._reader
    assert len(reader.read([watched.child])) == 1
    assert reader.read([watched.child]) == ()
    watched.child.state = ChildState.DRAINING
    assert len(reader.read([watched.child])) == 1
