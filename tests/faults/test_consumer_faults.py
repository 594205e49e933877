"""A consumer that is killed, stands still, or is cut off: its tasks are elsewhere soon after its lease, and what comes
back late changes nothing. A fleet's poller sees to it; its workers serve another queue."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import rota
from faulty_link import FaultyLink
from fleets import Fleets, Measure, RunningFleet
from waiting import until

QUEUE = "own"
LEASE_SECONDS = 2.0
ELSEWHERE_WITHIN_SECONDS = LEASE_SECONDS + 2
PROGRAM = Path(__file__).parents[1] / "consumer_program.py"


class Program:
    """A consumer in a process of its own."""

    def __init__(self, url: str, namespace: str) -> None:
        argv = [sys.executable, str(PROGRAM), url, namespace, QUEUE, str(LEASE_SECONDS)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reads(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def settle(self) -> None:
        """Have it settle what it holds."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(name="stack")
def _stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def program(stack: ExitStack, url: str, fleet: RunningFleet) -> Program:
    """A consumer that has begun to listen."""
    made = Program(url, fleet.namespace)
    stack.callback(made.end)
    return made


def test_the_tasks_of_a_consumer_that_fails_are_elsewhere_after_its_lease_and_late_settles_change_nothing(
    fleets: Fleets, stack: ExitStack, measured: Measure
) -> None:
    fleet = fleets.start(workers=1)
    link = stack.enter_context(FaultyLink(_port(fleet)))
    killed, stopped = program(stack, fleet.url, fleet), program(stack, fleet.url, fleet)
    cut_off = program(stack, link.url, fleet)
    faults = {"killed": killed, "stopped": stopped, "cut off": cut_off}
    until(lambda: len(_rows(fleet)) == len(faults), "all consumers are listed")
    fleet.client.enqueue_many(rota.Call("work", queue=QUEUE) for _ in faults)
    held = {name: each.reads().split(" ")[1] for name, each in faults.items()}
    assert {fleet.client.status(task_id).state.value for task_id in held.values()} == {"running"}

    began = time.monotonic()
    killed.process.kill()
    stopped.process.send_signal(19)
    link.silence(requests=True, replies=True)
    with fleet.client.consumer(QUEUE, limit=3) as heir, ThreadPoolExecutor(1) as pool:
        found = {task.id: task for task in pool.submit(lambda: [next(heir) for _ in faults]).result(30)}
        took = time.monotonic() - began
        measured("seconds until the tasks of three failed consumers were elsewhere, lease of 2 s", took)
        assert took < ELSEWHERE_WITHIN_SECONDS
        assert found.keys() == set(held.values())
        assert {(task.losses, task.crashes) for task in found.values()} == {(1, 0)}

        stopped.process.send_signal(18)
        link.heal()
        for name in ("stopped", "cut off"):
            faults[name].settle()
            assert faults[name].reads() == f"lost {held[name]}"
        assert not fleet.asked("audit")["done"]
        for task in found.values():
            task.done()
    fleet.client.enqueue("work", queue=QUEUE, id="after")
    assert "held after" in [pool_line for pool_line in (_first_line(stopped, cut_off),)]
    assert fleet.books_balance()
    assert fleet.asked("audit")["done"] == len(held)
