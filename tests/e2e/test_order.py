"""The order in which a single worker claims waiting tasks. The order depends on the tiers, on the fair rotation with
its weights, and on whether a task was delayed.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from rota import Call
from rota.worker.claims import MOST
from support.fleet_readings import Line
from support.fleets import RunningFleet, running_fleet
from support.servers import Server
from support.waiting import until

TIERS = [["gate"], ["high"], ["middle"], ["low"], ["red", "green", "blue"], ["heavy", "light"], ["full"], ["default"]]


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("order")
    settings = {"workers": 1, "tiers": TIERS, "queues": {"heavy": {"weight": 3}}}
    with running_fleet(server.url, folder.name, folder, **settings) as running:
        yield running


class Gate:
    """A task that keeps the only worker busy until the test has enqueued all other tasks."""

    def __init__(self, fleet: RunningFleet, label: str) -> None:
        self._fleet = fleet
        self._label = label
        fleet.hold(label, queue="gate")

    def open(self, count: int) -> list[Line]:
        """End the gate's task, so that the worker continues. Returns the next `count` starts, in order."""
        self._fleet.release(self._label)
        labels = [line.label for line in self._fleet.wait_for("end", label=self._label)]
        assert labels == [self._label]

        def after() -> list[Line] | None:
            lines = self._fleet.journal()
            since = next(n for n, line in enumerate(lines) if (line.event, line.label) == ("end", self._label))
            ended = [line for line in lines[since + 1 :] if line.event == "end"]
            return [line for line in lines[since + 1 :] if line.event == "start"] if len(ended) >= count else None

        starts = until(after, f"{count} tasks after the gate")
        assert starts is not None
        return starts


def fill(fleet: RunningFleet, queue: str, count: int, task: str = "note") -> None:
    fleet.client.enqueue_many([Call(task, args=[f"{queue}{number}"], queue=queue) for number in range(count)])


def test_a_lower_tier_is_served_only_if_higher_ones_are_empty(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "tiers")
    for queue in ("low", "middle", "high"):
        fill(fleet, queue, 10)
    starts = gate.open(30)
    assert [line.queue for line in starts] == ["high"] * 10 + ["middle"] * 10 + ["low"] * 10
    assert [line.label for line in starts[:10]] == [f"high{number}" for number in range(10)]


def test_a_new_task_in_a_higher_tier_runs_next(fleet: RunningFleet) -> None:
    inner = Gate(fleet, "first")
    fill(fleet, "low", 3)
    fleet.client.enqueue("hold", args=["in low"], queue="middle")
    fleet.release("first")
    fleet.wait_for("start", label="in low")
    fill(fleet, "high", 2)
    fleet.release("in low")
    starts = inner.open(6)
    assert [line.queue for line in starts] == ["middle", "high", "high", "low", "low", "low"]


def test_three_flooded_queues_are_served_in_strict_turn(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "colours")
    for queue in ("red", "green", "blue"):
        fill(fleet, queue, 30, "toil")
    served = [line.queue for line in gate.open(90)]
    for first in range(len(served) - 2):
        assert set(served[first : first + 3]) == {"red", "green", "blue"}, served[: first + 3]


def test_flooded_queues_of_short_tasks_are_served_evenly_except_for_one_claim(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "many colours")
    for queue in ("red", "green", "blue"):
        fill(fleet, queue, 1000)
    served = Counter({"red": 0, "green": 0, "blue": 0})
    for line in gate.open(3000):
        served[line.queue] += 1
        assert max(served.values()) - min(served.values()) <= MOST, served


def test_queues_with_weights_three_and_one_are_served_three_to_one(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "weights")
    fill(fleet, "light", 20, "toil")
    fill(fleet, "heavy", 60, "toil")
    served = [line.queue for line in gate.open(80)]
    while_both_wait = served[: 4 * 19]
    for first in range(0, len(while_both_wait) - 3, 4):
        assert Counter(while_both_wait[first : first + 4]) == {"heavy": 3, "light": 1}, served


def test_a_fleet_starts_tasks_in_the_order_that_explain_shows(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "explained")
    for queue, count in (("low", 3), ("light", 4), ("heavy", 8), ("high", 2), ("green", 2), ("red", 3)):
        for number in range(count):
            task_id = f"explained-{queue}{number}"
            fleet.client.enqueue(Call("toil", args=[task_id], queue=queue, id=task_id))
    [pool] = fleet.client.explain(30).pools
    assert (pool.pool, len(pool.claims), pool.is_whole) == ("default", 22, True)
    assert [line.label for line in gate.open(22)] == [claim.id for claim in pool.claims]


def test_a_due_task_starts_before_a_thousand_waiting_in_its_queue(fleet: RunningFleet) -> None:
    gate = Gate(fleet, "due")
    fill(fleet, "full", 1000)
    due = fleet.client.enqueue("note", args=["due now"], queue="full", delay=0.2)
    until(lambda: fleet.client.status(due.id).state == "ready", "its promotion")
    starts = gate.open(1001)
    assert starts[0].label == "due now"
    assert [line.label for line in starts[1:]] == [f"full{number}" for number in range(1000)]
