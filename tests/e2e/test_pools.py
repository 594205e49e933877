"""Pools: workers that are reserved for some queues, pools that are added and removed, and a node that runs only one of
several pools.
"""

import redis

from rota.protocol.keys import Keys
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

TIERS = [["high"], ["default"], ["low"]]
SLOW = 50  # number of tasks in the low tier, which three workers serve
URGENT = 20


def fleet_of(fleets: Fleets, **pools: object) -> RunningFleet:
    return fleets.make(tiers=TIERS, pools=pools)


def workers_of(fleet: RunningFleet, pool: str) -> set[int]:
    return {row["pid"] for row in fleet.children("worker") if row["pool"] == pool}


def test_tasks_of_a_reserved_pool_start_at_once_despite_a_flood_elsewhere(fleets: Fleets, measured: Measure) -> None:
    pools = {"reserved": {"workers": 1, "queues": ["high"]}, "rest": {"workers": 3}}
    fleet = fleet_of(fleets, **pools).start()
    [reserved] = workers_of(fleet, "reserved")
    for _ in range(SLOW):
        fleet.client.enqueue("hold", args=["slow"], queue="low")
    fleet.wait_for("start", 3, label="slow")
    # When the urgent tasks arrive, all workers that are not reserved run tasks that do not end by themselves.
    for number in range(URGENT):
        fleet.client.enqueue("note", args=[f"urgent {number}"], queue="high")
        fleet.wait_for("end", label=f"urgent {number}")
    starts = [line for line in fleet.journal("start") if line.queue == "high"]
    lags = sorted(line.at - line.due_at for line in starts)
    measured("median seconds of lag in the high tier under the flood", lags[URGENT // 2])
    measured("longest", lags[-1])
    assert {line.pid for line in starts} == {reserved}
    assert len(fleet.journal("start", label="slow")) == 3, "no other worker claimed any of them, and none has ended"
    assert fleet.metrics().total("rota_workers_busy", pool="rest") == 3
    fleet.release("slow")
    fleet.wait_until_nothing_waits(60)
    assert reserved not in {line.pid for line in fleet.journal("start", label="slow")}
    assert fleet.books_balance()


def test_a_reload_replaces_pools_after_their_running_tasks_end(fleets: Fleets) -> None:
    fleet = fleet_of(fleets, mail={"workers": 1, "queues": ["high"]}, rest={"workers": 1}).start()
    # Each worker has one task, because the worker that serves all queues also claims from this queue.
    for label in "ab":
        fleet.hold(label, queue="high")
    busy = fleet.workers()
    fleet.edit(pools={"post": {"workers": 1, "queues": ["high"]}, "rest": {"workers": 1}})
    assert fleet.rota("reload").returncode == 0
    [leaving] = workers_of(fleet, "mail")
    assert leaving in busy, "the old worker drains"
    until(lambda: len(workers_of(fleet, "post")) == 1, "the new pool")
    fleet.client.enqueue("note", args=["by the new pool"], queue="high")
    fleet.wait_for("end", label="by the new pool")
    for label in "ab":
        fleet.release(label)
        fleet.wait_for("end", label=label)
    until(lambda: not workers_of(fleet, "mail"), "the old pool has left")
    assert [line.crashes for line in fleet.journal("start")] == [0, 0, 0]
    metrics = fleet.metrics()
    assert metrics.total("rota_workers", pool="post", state="running") == 1
    assert ("rota_workers_desired", frozenset({("pool", "mail")})) not in metrics.values


def test_a_node_with_one_pool_serves_only_its_queues(fleets: Fleets, redis_client: "redis.Redis") -> None:
    fleet = fleet_of(fleets, mail={"queues": ["high"]}, rest={"queues": ["default", "low"]})
    fleet.client.enqueue("note", args=["for another node"], queue="low")
    fleet.client.enqueue("note", args=["for us"], queue="high")
    left = fleet.rota("run", "--pool", "mail", "-w", "mail=2", "--burst")
    assert left.returncode == 0, left.stderr
    assert [line.label for line in fleet.journal("end")] == ["for us"]
    served = redis_client.hkeys(Keys(fleet.namespace).served)
    assert [name.decode() if isinstance(name, bytes) else name for name in served] == ["high"]


def test_check_warns_about_a_queue_without_workers(fleets: Fleets) -> None:
    fleet = fleet_of(fleets, mail={"workers": 0, "queues": ["high", "low"]}, rest={"queues": ["default"]})
    checked = fleet.rota("check", "--no-imports")
    assert checked.returncode == 0
    assert 'no worker takes queue "high": the pools that serve it have no workers (mail)' in checked.stderr
