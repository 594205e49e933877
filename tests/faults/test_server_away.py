"""The server dies, stalls, or accepts no writes. No lease expires because of this, and no finished task runs again."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from rota import Call
from support.fleets import Measure, RunningFleet
from support.server_fixtures import SHORT_LEASE, Producer, Shaken, extra_runs, nothing_was_requeued, wait_until_all_ran
from support.waiting import until

AWAY_SECONDS = 5.0
STALL_SECONDS = 8.0  # longer than three short leases, and longer than any process waits for a reply
MOST_BACKOFF_SECONDS = 2.0  # the longest pause before a worker tries to connect again
LOAD = 50
UNSYNCED = 1_000  # far more tasks than the producers of this test send in the second between two fsyncs


def seconds_to_next_start(fleet: RunningFleet, since: float) -> float:
    """Return the number of seconds from `since`, which is a Unix time, to the next start of a task."""
    started = until(lambda: [line.at for line in fleet.journal("start") if line.at > since], "a task after the outage")
    return started[0] - since


@pytest.mark.parametrize("server_options", [pytest.param({"appendonly": "yes"}, id="")])
def test_a_server_crash_loses_only_tasks_that_were_not_synced_to_disk(shaken: Shaken, measured: Measure) -> None:
    fleet = shaken.start(workers=4)
    with Producer(shaken.server.url, shaken.namespace) as producer:
        producer.wait_for(LOAD)
        shaken.server.kill()
        killed_at = time.time()
        before = len(producer.accepted)
        time.sleep(AWAY_SECONDS)
        shaken.server.start()
        seconds = seconds_to_next_start(fleet, time.time())
        measured("seconds from the server's return to the next start", seconds)
        assert seconds < MOST_BACKOFF_SECONDS + 2
        producer.wait_for(LOAD)
    fleet.wait_until_nothing_waits(30)
    assert fleet.books_balance()
    ended = {line.id for line in fleet.journal("end")}
    lost = [task_id for task_id in producer.accepted if task_id not in ended]
    measured("accepted tasks lost", len(lost))
    assert set(lost) <= set(list(producer.accepted)[max(0, before - UNSYNCED) : before])
    again = extra_runs(fleet)
    measured("tasks run again", len(again))
    starts = {line.id: line.at for line in reversed(fleet.journal("start"))}
    assert all(count == 1 and starts[task_id] > killed_at - 2 for task_id, count in again.items())


@contextmanager
def killed(shaken: Shaken) -> Iterator[None]:
    shaken.server.kill()
    yield
    shaken.server.start()


@contextmanager
def stalled(shaken: Shaken) -> Iterator[None]:
    sleep = ("DEBUG", "SLEEP", str(STALL_SECONDS))
    sleeping = threading.Thread(target=shaken.do, args=sleep)
    sleeping.start()
    yield
    sleeping.join()


@contextmanager
def without_writes(shaken: Shaken) -> Iterator[None]:
    shaken.do("CLIENT", "PAUSE", "3600000", "WRITE")
    yield
    shaken.do("CLIENT", "UNPAUSE")


@pytest.mark.parametrize(
    "server_options", [pytest.param({"appendonly": "yes", "appendfsync": "always"}, id="fsync-always")]
)
@pytest.mark.parametrize("outage", [killed, stalled, without_writes])
def test_an_outage_longer_than_three_leases_loses_and_repeats_no_task(
    shaken: Shaken, outage: Callable[[Shaken], AbstractContextManager[None]], measured: Measure
) -> None:
    fleet = shaken.start(workers=4, lease=SHORT_LEASE)
    late = shaken.start_late_node("ends on the late node")
    for label in ("ends meanwhile", "ends later"):
        fleet.hold(label)
    workers = fleet.workers()
    fleet.client.enqueue_many(Call("note", ["due"], queue="default", delay=2 + n % 6) for n in range(60))
    with Producer(shaken.server.url, shaken.namespace) as producer:
        producer.wait_for(LOAD)
        shaken.lose_link()
        with outage(shaken):
            time.sleep(STALL_SECONDS / 2)
            fleet.release("ends meanwhile")
            fleet.wait_for("end", label="ends meanwhile")
            time.sleep(STALL_SECONDS / 2)
        measured("seconds to the next start", seconds_to_next_start(fleet, time.time()))
        shaken.heal_link_late()
        producer.wait_for(LOAD)
    for label in ("ends later", "ends on the late node"):
        fleet.release(label)
        fleet.wait_for("end", label=label)
    fleet.wait_for("end", 60, label="due")
    wait_until_all_ran(fleet, producer)
    assert fleet.log("redis.lost"), "no worker noticed"
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)
    nothing_was_requeued(late)
