"""The end of a fleet that is stopped in the regular way, or killed without a chance to clean up."""

import signal

import pytest
import redis

from rota.protocol.keys import Keys
from support.fleets import Fleets, RunningFleet
from support.waiting import seconds_until, until

WAITING = 20
LEASE = {"seconds": 2, "renew_seconds": 0.5}


def in_flight(redis_client: "redis.Redis", fleet: RunningFleet) -> dict[str, int]:
    """Return the number of entries that each owner holds."""
    keys = Keys(fleet.namespace)
    found = redis_client.scan_iter(match=keys.inflight("*"), count=1000)
    return {key.decode(): redis_client.llen(key) for key in found}


def enqueue_notes(fleet: RunningFleet) -> None:
    for number in range(WAITING):
        fleet.client.enqueue("note", args=[str(number)], queue="default")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_tasks_finish_and_waiting_tasks_stay_in_their_queue(
    fleets: Fleets, redis_client: "redis.Redis", number: int
) -> None:
    fleet = fleets.start()
    starts = [fleet.hold("one"), fleet.hold("two")]
    enqueue_notes(fleet)
    delayed = fleet.client.enqueue("note", args=["later"], queue="default", delay=600)
    fleet.signal(number)
    until(lambda: fleet.log("fleet.draining"))
    assert fleet.get("/readyz")[0] == 503
    for start in starts:
        fleet.release(start.label)
    assert fleet.exit_code() == 0
    assert fleet.log("fleet.stopped")
    assert fleet.processes() == []
    assert {line.id for line in fleet.journal("end")} == {start.id for start in starts}
    assert in_flight(redis_client, fleet) == {}
    assert redis_client.zcard(Keys(fleet.namespace).owners) == 0
    assert redis_client.llen(Keys(fleet.namespace).ready_lane("default")) == WAITING
    assert fleet.client.status(delayed.id).state == "scheduled"
    assert fleet.books_balance()

    assert fleet.rota("run", "--burst").returncode == 0
    assert len(fleet.journal("end", name="note")) == WAITING


def test_a_task_that_outlasts_the_drain_is_released_without_a_crash(
    fleets: Fleets, redis_client: "redis.Redis"
) -> None:
    fleet = fleets.start(workers=1, limits={"drain_seconds": 0.5})
    start = fleet.hold("endless")
    enqueue_notes(fleet)
    fleet.term()
    assert fleet.exit_code() == 0
    assert in_flight(redis_client, fleet) == {}
    fleet.release("endless")
    assert fleet.rota("run", "--burst").returncode == 0
    first_of_next = fleet.journal("start")[1]
    assert (first_of_next.id, first_of_next.crashes) == (start.id, 0)
    assert len(fleet.journal("end")) == WAITING + 1
    assert fleet.books_balance()


def test_a_killed_master_leaves_no_process_and_another_recovers_its_tasks(
    fleets: Fleets, redis_client: "redis.Redis"
) -> None:
    fleet = fleets.start(workers=3, lease=LEASE)
    held = [fleet.hold(f"held{number}") for number in range(2)]
    enqueue_notes(fleet)
    fleet.wait_for("end", WAITING)
    fleet.signal(signal.SIGKILL)
    took = seconds_until(lambda: not fleet.processes(), "the end of every process")
    assert took < 2
    assert sum(in_flight(redis_client, fleet).values()) == len(held)

    fleet.start()
    for start in held:
        fleet.release(start.label)
        again = fleet.wait_for("start", 2, label=start.label)[1]
        assert (again.id, again.crashes) == (start.id, 0)
        fleet.wait_for("end", label=start.label)
    until(lambda: in_flight(redis_client, fleet) == {})
    assert fleet.metrics().total("rota_tasks_recovered_total", reason="lease_expired") == len(held)
    assert fleet.books_balance()
