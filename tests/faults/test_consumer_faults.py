"""Consumers that are killed, stopped or cut off from the server. Soon after the leases of these consumers have expired,
other consumers run their tasks. Late calls of the failed consumers change nothing. The fleet's poller reaps these
consumers. The fleet's only worker serves another queue, so it does not take their tasks.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

import rota
from rota.protocol.keys import Keys
from support.faulty_link import FaultyLink
from support.fleets import Fleets, Measure, RunningFleet
from support.servers import Server
from support.waiting import until

QUEUE = "own"
LEASE_SECONDS = 2.0
ELSEWHERE_WITHIN_SECONDS = LEASE_SECONDS + 2
PROGRAM = Path(__file__).parents[1] / "support" / "consumer_program.py"


class Program:
    """A program with a consumer, in a separate process."""

    def __init__(self, url: str, namespace: str) -> None:
        argv = [sys.executable, str(PROGRAM), url, namespace, QUEUE, str(LEASE_SECONDS)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read_line(self) -> str:
        """Return the next line that the consumer prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def settle(self) -> None:
        """Let the consumer settle the task that it holds."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill the consumer, whatever state it is in."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(name="stack")
def _stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def program(stack: ExitStack, url: str, fleet: RunningFleet) -> Program:
    """Start a program with a consumer. It is killed when the stack is closed."""
    made = Program(url, fleet.namespace)
    stack.callback(made.end)
    return made


def taken_over(heirs: list[rota.Consumer], fail: Callable[[], object]) -> tuple[dict[str, rota.LeasedTask], float]:
    """Let each of the consumers in `heirs` wait for one task, and then call `fail`, which makes the other consumers
    fail. Returns the received tasks by id, and the number of seconds until every heir had received a task.
    """
    with ThreadPoolExecutor(len(heirs)) as pool, ExitStack() as stopping:
        for heir in heirs:
            stopping.callback(heir.stop)
        waiting = [pool.submit(next, heir) for heir in heirs]
        began = time.monotonic()
        fail()
        tasks = [each.result(30) for each in waiting]
        return {task.id: task for task in tasks}, time.monotonic() - began


def each_holds_one(fleet: RunningFleet, programs: list[Program]) -> dict[Program, str]:
    """Return which task each of these programs holds. There must be no other tasks."""
    until(lambda: len(fleet.rota_json("status")["consumers"]) == len(programs), "all consumers have begun")
    fleet.client.enqueue_many(rota.Call("work", queue=QUEUE) for _ in programs)
    return {each: each.read_line().split(" ")[1] for each in programs}


def test_tasks_of_failed_consumers_run_elsewhere_and_late_acks_change_nothing(
    fleets: Fleets, server: Server, redis_client: "redis.Redis", stack: ExitStack, measured: Measure
) -> None:
    fleet = fleets.start(workers=1, lease={"seconds": LEASE_SECONDS, "renew_seconds": LEASE_SECONDS / 4})
    link = stack.enter_context(FaultyLink(server.port))
    killed = program(stack, fleet.url, fleet)
    stopped = program(stack, fleet.url, fleet)
    cut_off = program(stack, link.url, fleet)
    failing = [killed, stopped, cut_off]
    keys = Keys(fleet.namespace)
    until(lambda: float(redis_client.hget(keys.pulse, "grace_until") or "inf") < time.time() * 1e6, "no grace is on")
    held = each_holds_one(fleet, failing)
    assert {fleet.client.status(task_id).state.value for task_id in held.values()} == {"running"}
    until(lambda: fleet.metrics().total("rota_consumer_held_tasks") == len(failing), "the metrics show it")

    def fail() -> None:
        killed.process.kill()
        stopped.process.send_signal(signal.SIGSTOP)
        link.silence(requests=True, replies=True)

    # A task whose owner was lost runs alone, so a separate consumer is needed for each of these tasks.
    found, took = taken_over([stack.enter_context(fleet.client.consumer(QUEUE)) for _ in failing], fail)
    measured("seconds until the tasks of three failed consumers were elsewhere, lease of 2 s", took)
    assert took < ELSEWHERE_WITHIN_SECONDS
    assert found.keys() == set(held.values())
    assert {(task.losses, task.crashes) for task in found.values()} == {(1, 0)}

    stopped.process.send_signal(signal.SIGCONT)
    attended = link.calls["attend"]
    link.heal()
    until(lambda: link.calls["attend"] > attended + 1, "the consumer is connected again")
    for each in (stopped, cut_off):
        each.settle()
        assert each.read_line() == f"lost {held[each]}"
    assert not redis_client.hget(keys.totals, "done")
    for task in found.values():
        task.done()
    check_consumers_continue(fleet, stopped, cut_off)
    assert int(redis_client.hget(keys.totals, "done") or 0) == len(held) + 2
    assert fleet.books_balance()


def check_consumers_continue(fleet: RunningFleet, *programs: Program) -> None:
    """Check that each of these consumers takes and ends another task, under a new owner name."""
    fleet.client.enqueue_many(rota.Call("work", queue=QUEUE) for _ in programs)
    # Wait until every consumer holds a task. Otherwise a consumer that has already settled its task could take the task
    # meant for another consumer.
    for each in programs:
        assert each.read_line().startswith("held ")
    for each in programs:
        each.settle()
        assert each.read_line().startswith("done ")
