"""Workers that are killed exactly between two steps of the protocol. The faulty link kills the worker when a certain
request, or the reply to that request, passes through the link.
"""

import functools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pytest
import redis

from rota.protocol.keys import Keys
from support.faulty_link import FaultyLink
from support.fleet_readings import Line
from support.fleets import RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

ROUNDS = 3


@pytest.fixture
def fleet(fleet_behind_link: RunningFleet) -> RunningFleet:
    return fleet_behind_link.start()


@dataclass
class Trap:
    """A gate of the link. When the worker's next turn, or the reply to that turn, reaches the gate, the gate kills the
    worker and holds this data back. The link delivers the data when it works again.
    """

    pid: int
    ports: frozenset[int]
    is_reply: bool
    sprung: bool = False

    def __call__(self, name: str, is_reply: bool, port: int) -> bool:
        if self.sprung or port not in self.ports or (name, is_reply) != ("turn", self.is_reply):
            return True
        self.sprung = True
        os.kill(self.pid, signal.SIGKILL)
        return False


def trap_for(pid: int, *, is_reply: bool) -> Trap:
    connections = psutil.Process(pid).net_connections("tcp")
    return Trap(pid, frozenset(connection.laddr.port for connection in connections), is_reply)


def only_worker(fleet: RunningFleet) -> int:
    [pid] = fleet.until_workers(1)
    return pid


def die_at(fleet: RunningFleet, link: FaultyLink, trap: Trap, trigger: Callable[[], object]) -> None:
    """Set the trap, call `trigger` to make the worker run into the trap, and wait until another worker has started.
    Only then does the link deliver the data that was held back.
    """
    link.gate = trap
    trigger()
    until(lambda: trap.sprung, "the turn that kills")
    until(lambda: fleet.is_whole_without(trap.pid), "its successor")
    link.heal()


def enqueue_note(fleet: RunningFleet, label: str) -> None:
    fleet.client.enqueue("note", args=[label], queue="default")


def has_ended(fleet: RunningFleet, task_id: str) -> bool:
    return fleet.client.status(task_id).state not in ("ready", "running")


def sleeps(redis_client: "redis.Redis", fleet: RunningFleet) -> bool:
    """Whether the worker that was started last is waiting at a doorbell."""
    started = fleet.log("worker.started")
    if not started:  # the start of a worker is logged shortly after its process has been started
        return False
    name = f"rota:worker:{started[-1]['owner']}"
    return any(each["name"] == name and "b" in each["flags"] for each in redis_client.client_list())


def nothing_is_held(redis_client: "redis.Redis", fleet: RunningFleet) -> bool:
    return not list(redis_client.scan_iter(match=Keys(fleet.namespace).inflight("*"), count=1000))


def test_a_worker_killed_before_its_claim_was_answered_loses_no_task(
    fleet: RunningFleet, link: FaultyLink, redis_client: "redis.Redis"
) -> None:
    for number in range(ROUNDS):
        worker = only_worker(fleet)
        until(lambda: sleeps(redis_client, fleet), "the worker sleeps: the next reply is that of the turn that claims")
        trap = trap_for(worker, is_reply=True)
        die_at(fleet, link, trap, functools.partial(enqueue_note, fleet, f"{number}"))
        fleet.wait_for("end", label=f"{number}")
        [start] = fleet.journal("start", label=f"{number}")
        assert (start.pid != trap.pid, start.crashes) == (True, 0)
    assert len(fleet.log("task.recovered")) == ROUNDS
    until(lambda: nothing_is_held(redis_client, fleet))
    assert fleet.books_balance()


@pytest.mark.parametrize("is_reply", [False, True], ids=["before it is told", "after it is told"])
def test_finished_task_of_a_killed_worker_never_runs_again(
    fleet: RunningFleet, link: FaultyLink, redis_client: "redis.Redis", is_reply: bool
) -> None:
    for number in range(ROUNDS):
        held = fleet.hold(f"{number}")
        die_at(fleet, link, trap_for(held.pid, is_reply=is_reply), functools.partial(fleet.release, held.label))
        until(functools.partial(has_ended, fleet, held.id), "its end")
        enqueue_note(fleet, f"after {number}")
        fleet.wait_for("end", label=f"after {number}")
    until(lambda: nothing_is_held(redis_client, fleet))
    assert _runs(fleet.journal("start")) == _runs(fleet.journal("end")) == 2 * ROUNDS
    assert fleet.log("task.recovered") == []
    assert fleet.rota_json("audit")["live"] == 0
    assert fleet.books_balance()


def _runs(lines: list[Line]) -> int:
    assert len({line.id for line in lines}) == len(lines), "one ran twice"
    return len(lines)


def test_a_late_claim_of_a_reaped_worker_takes_no_task(
    fleet: RunningFleet, link: FaultyLink, redis_client: "redis.Redis"
) -> None:
    first = fleet.hold("first")
    for name, label in (("hold", "second"), ("note", "third")):
        fleet.client.enqueue(name, args=[label], queue="default")
    trap = link.gate = trap_for(first.pid, is_reply=False)
    fleet.release("first")
    until(lambda: trap.sprung, "the turn that would settle the first and claim the next")
    # The worker that replaces the killed one runs the second task. The third task stays in the lane.
    fleet.wait_for("start", label="second")
    connections = link.connections
    link.heal()
    until(lambda: link.connections < connections, "the late turn was delivered, and its connection has ended")
    assert redis_client.llen(Keys(fleet.namespace).ready_lane("default")) == 1
    fleet.release("second")
    fleet.wait_for("end", label="third")
    assert [line.label for line in fleet.journal("start")] == ["first", "second", "third"]
    until(lambda: nothing_is_held(redis_client, fleet))
    assert fleet.books_balance()


def asleep(redis_client: "redis.Redis", fleet: RunningFleet) -> int:
    """Return how many workers are waiting in a BLPOP."""
    name = f"rota:worker:{fleet.status()['node']}:"
    return sum(each["name"].startswith(name) and "b" in each["flags"] for each in redis_client.client_list())


def test_claims_of_a_stopped_worker_run_elsewhere_after_its_death(
    fleet: RunningFleet, redis_client: "redis.Redis"
) -> None:
    fleet.edit(workers=2)
    fleet.hup()
    for number in range(ROUNDS):
        [stopped, other] = sorted(fleet.until_workers(2))
        until(lambda: asleep(redis_client, fleet) == 2, "both listen for their doorbell")
        for pid in (stopped, other):
            os.kill(pid, signal.SIGSTOP)
        labels = [f"{number}-{each}" for each in range(2)]
        # Both workers were waiting in BLPOP when they were stopped. Each worker has already sent a turn behind its
        # BLPOP. This turn claims one task for the worker.
        for label in labels:
            enqueue_note(fleet, label)
        until(lambda: redis_client.llen(Keys(fleet.namespace).ready_lane("default")) == 0, "both are taken")
        os.kill(other, signal.SIGCONT)
        os.kill(stopped, signal.SIGKILL)
        killed_at = time.time()
        starts = [fleet.wait_for("start", label=label)[0] for label in labels]
        assert stopped not in {line.pid for line in starts}
        assert max(line.at for line in starts) - killed_at < 2
        assert [line.crashes for line in starts] == [0, 0]
    fleet.wait_until_nothing_waits(30)
    assert len(fleet.journal("start")) == 2 * ROUNDS
    assert fleet.books_balance()
