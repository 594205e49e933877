"""The soft time limits about which a worker notifies the master. It does so only when a limit becomes the shortest
one.
"""

from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slots import Slot
from rota.worker.attempt import ShortLimits
from rota_supervisor.master.core.plan import URGENT_SECONDS

SECOND_NS = 1_000_000_000
TENTH_NS = SECOND_NS // 10


class Worker:
    """A worker that claims tasks with soft time limits. `rings` lists the times at which the worker notified the
    master.
    """

    def __init__(self) -> None:
        self.slot = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
        self.rings: list[float] = []
        self.now = 1000.0
        self.limits = ShortLimits(self.slot, lambda: self.rings.append(self.now))

    def met(self, limit_ns: int, at: float) -> "Worker":
        self.now = at
        self.limits.note(limit_ns, round(at * SECOND_NS))
        return self

    @property
    def shown(self) -> tuple[int, float]:
        return self.slot.shortest_soft_ns, self.slot.shortest_soft_met_ns / SECOND_NS


def test_a_worker_notifies_the_master_only_of_a_new_shortest_soft_limit() -> None:
    worker = Worker().met(SECOND_NS, 1000.0).met(5 * TENTH_NS, 1001.0).met(5 * TENTH_NS, 1002.0)
    assert (worker.rings, worker.shown) == ([1001.0], (5 * TENTH_NS, 1002.0))
    worker.met(TENTH_NS, 1003.0).met(5 * TENTH_NS, 1004.0)
    assert (worker.rings, worker.shown) == ([1001.0, 1003.0], (TENTH_NS, 1003.0))


def test_a_minute_after_the_shortest_soft_limit_the_next_one_is_notified() -> None:
    worker = Worker().met(TENTH_NS, 1000.0).met(5 * TENTH_NS, 1060.0)
    assert (worker.rings, worker.shown) == ([1000.0], (TENTH_NS, 1000.0))
    worker.met(5 * TENTH_NS, 1060.5)
    assert (worker.rings, worker.shown) == ([1000.0, 1060.5], (5 * TENTH_NS, 1060.5))


def test_a_soft_limit_is_notified_again_before_the_master_forgets_it() -> None:
    for quiet in range(1, 200):
        worker = Worker().met(TENTH_NS, 1000.0).met(TENTH_NS, 1000.0 + quiet)
        assert len(worker.rings) == 2 or quiet < URGENT_SECONDS - 1.0, quiet
