"""Workers that are ordered to exit while the server claims tasks for them."""

import psutil
import pytest
import redis

from rota.protocol.keys import Keys
from support.faulty_link import FaultyLink
from support.fleets import RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

WORKERS = 2


@pytest.fixture
def fleet(fleet_behind_link: RunningFleet) -> RunningFleet:
    fleet_behind_link.edit(workers=WORKERS)
    return fleet_behind_link.start()


def _ports(process: psutil.Process) -> set[int]:
    return {connection.laddr.port for connection in process.net_connections("tcp")}


@pytest.mark.parametrize("can_ask", [True, False], ids=["told by itself", "told by the master"])
def test_tasks_claimed_for_a_worker_that_is_stopping_are_released(
    fleet: RunningFleet, link: FaultyLink, redis_client: "redis.Redis", *, can_ask: bool
) -> None:
    workers = fleet.workers()
    parked = {port for pid in workers for port in _ports(psutil.Process(pid))}
    others = {port for process in fleet.processes() if process.pid not in workers for port in _ports(process)}

    def gate(name: str, is_reply: bool, port: int) -> bool:
        if port in parked:
            return not (is_reply and name == "blpop")
        return can_ask or port in others or name != "turn"

    link.gate = gate
    for number in range(WORKERS):
        fleet.client.enqueue("note", args=[f"{number}"], queue="default")
    lists = [Keys(fleet.namespace).inflight(owner.decode()) for owner in _owners(redis_client, fleet)]
    until(
        lambda: [redis_client.llen(each) for each in lists] == [1] * WORKERS,
        "each worker holds a task that it does not know of",
    )
    fleet.rota("scale", "1")
    (left,) = until(lambda: fleet.log("worker.exited"), "one has left")
    assert (left["exit_code"], left["reason"], left["idle"]) == (0, "drained", True)
    (released,) = until(lambda: fleet.log("task.released"), "its tasks are back in their lanes")
    assert released["role"] == ("worker" if can_ask else "master")
    until(
        lambda: fleet.metrics().total("rota_tasks_processed_total", outcome="released") == 1, "the release is counted"
    )
    link.heal()
    fleet.wait_for("end", count=WORKERS)
    assert all(line.crashes == 0 for line in fleet.journal("start"))
    assert fleet.log("task.recovered") == []
    assert fleet.metrics().total("rota_tasks_recovered_total") == 0
    until(fleet.books_balance, "balanced books")


def _owners(redis_client: "redis.Redis", fleet: RunningFleet) -> list[bytes]:
    found = redis_client.zrange(Keys(fleet.namespace).owners, 0, -1)
    assert isinstance(found, list)
    return [owner for owner in found if isinstance(owner, bytes)]
