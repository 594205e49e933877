"""A real Redis Cluster of three primaries and three replicas. The slot of the namespace moves, its primary is replaced,
frozen or killed, and the whole cluster restarts. In each case, the fleet continues to work, and no acknowledged task is
lost.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rota
from support.clusters import NODE_TIMEOUT_SECONDS, Cluster
from support.fleets import Measure, RunningFleet
from support.following import after, check_followed, lines_by_group
from support.hosts import obstacle
from support.partition import Partition
from support.server_fixtures import Producer, extra_runs, lost_of
from support.servers import binary_of
from support.waiting import until

# A worker that waits at a doorbell notices a frozen server when the reply to its command is overdue, after up to 8 s.
AFTER_FAILOVER_SECONDS = 10.0
TESTS = Path(__file__).parents[1]
NAMESPACE_OF_FIRST_NODE = "part3"  # its hash slot is in the first third
SHOWN_CHARACTERS = 20_000
GROUPS = 6
MEMBERS = 20


@pytest.fixture(name="cluster", params=["redis"])
def _cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(binary_of(request.param), tmp_path / "cluster") as running:
        yield running


@pytest.fixture(name="fleet")
def _fleet(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[RunningFleet]:
    folder = tmp_path / "fleet"
    folder.mkdir()
    fleet = RunningFleet(cluster.url, namespace, folder, workers=3)
    try:
        yield fleet.start()
    finally:
        fleet.close()


def load(cluster: Cluster, fleet: RunningFleet, **options: Any) -> Producer:
    """Return a producer of tasks. It repeats a call whose outcome is uncertain until the server replies."""
    return Producer(cluster.url, fleet.namespace, threads=3, patience_seconds=30, timeout_seconds=3, **options)


def wait_until_work_goes_on(fleet: RunningFleet, measured: Measure, since: str) -> None:
    began = time.monotonic()
    seen = len(fleet.journal("end"))
    until(lambda: len(fleet.journal("end")) > seen, "the work continues", AFTER_FAILOVER_SECONDS)
    measured(f"seconds from {since} to the next task", time.monotonic() - began)


def test_a_slot_that_moves_under_load_loses_and_repeats_nothing(
    cluster: Cluster, fleet: RunningFleet, measured: Measure
) -> None:
    workers = fleet.workers()
    with load(cluster, fleet) as producer:
        producer.wait_for(200)
        for _ in range(3):
            began = time.monotonic()
            cluster.move_slot(fleet.namespace)
            measured("seconds of a migration", time.monotonic() - began)
            wait_until_work_goes_on(fleet, measured, "the end of a migration")
            producer.wait_for(100)
    assert lost_of(fleet, producer) == set()
    assert not producer.doubtful
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    assert not fleet.log("worker.exited")


@pytest.mark.parametrize("cluster", ["valkey"], indirect=True)  # Redis 7 moves a slot key by key
def test_a_slot_that_moves_as_a_whole_under_load_loses_and_repeats_nothing(
    cluster: Cluster, fleet: RunningFleet, measured: Measure
) -> None:
    with load(cluster, fleet) as producer:
        producer.wait_for(200)
        for _ in range(3):
            cluster.move_slot_as_a_whole(fleet.namespace)
            wait_until_work_goes_on(fleet, measured, "the end of a migration")
            producer.wait_for(100)
    assert lost_of(fleet, producer) == set()
    assert not producer.doubtful
    assert not extra_runs(fleet)


def test_a_slow_migration_pauses_the_fleet_and_wakes_it_afterwards(cluster: Cluster, fleet: RunningFleet) -> None:
    """The slot stays open for several seconds, while producers and workers try to use it."""
    fleet.hold("held")
    with rota.Client(cluster.url, fleet.namespace, timeout_seconds=30) as patient:
        passed_by: list[str] = []

        def between() -> None:
            with (
                rota.Client(cluster.url, fleet.namespace, timeout_seconds=0.3) as hasty,
                pytest.raises(rota.Unavailable, match=r"TRYAGAIN|ASK"),
            ):
                hasty.enqueue("note", args=["refused"], queue="default")
            passed_by.append("")

        cluster.move_slot(fleet.namespace, between)
        patient.enqueue("note", args=["afterwards"], queue="default")
    assert len(passed_by) > 2
    fleet.release("held")
    fleet.wait_for("end", label="afterwards")
    fleet.wait_for("end", label="held")
    assert not fleet.journal("start", label="refused")
    assert not extra_runs(fleet)
    fleet.wait_until_nothing_waits(30)
    assert fleet.books_balance()


def test_a_killed_primary_is_replaced_and_durability_wait_loses_nothing(
    cluster: Cluster, fleet: RunningFleet, measured: Measure
) -> None:
    with load(cluster, fleet, durability="wait") as producer:
        producer.wait_for(200)
        killed = cluster.owner_of(fleet.namespace)
        killed.kill()
        cluster.wait_for_another(killed, fleet.namespace)
        killed.start()  # returns as a replica: until then, no enqueue is confirmed
        wait_until_work_goes_on(fleet, measured, "the failover")
        producer.wait_for(200)
    assert lost_of(fleet, producer) == set()
    assert not producer.doubtful
    assert max(extra_runs(fleet).values(), default=0) <= 1
    assert fleet.log("redis.lost")
    assert fleet.log("redis.back")


def test_a_killed_primary_loses_only_unreplicated_tasks(
    cluster: Cluster, fleet: RunningFleet, measured: Measure
) -> None:
    with load(cluster, fleet) as producer:
        producer.wait_for(300)
        replicated = set(producer.accepted)
        killed = cluster.owner_of(fleet.namespace)
        until(lambda: cluster.has_all_copies(killed), "a replica that has these")
        producer.wait_for(20)
        killed.kill()
        killed_at = time.monotonic()
        cluster.wait_for_another(killed, fleet.namespace)
        wait_until_work_goes_on(fleet, measured, "the failover")
        producer.wait_for(200)
    lost = lost_of(fleet, producer)
    measured("acknowledged and lost", len(lost))
    assert not lost & replicated
    assert all(producer.accepted[task_id] < killed_at + 0.1 for task_id in lost), "nothing of the new primary's is lost"
    assert not producer.doubtful


def test_an_orderly_failover_keeps_workers_and_acknowledged_tasks(
    cluster: Cluster, fleet: RunningFleet, measured: Measure
) -> None:
    workers = fleet.workers()
    owner = cluster.owner_of(fleet.namespace)
    with load(cluster, fleet) as producer:
        producer.wait_for(200)
        cluster.fail_over(owner)
        cluster.wait_for_another(owner, fleet.namespace)
        wait_until_work_goes_on(fleet, measured, "the failover")
        producer.wait_for(200)
    assert lost_of(fleet, producer) == set()
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    assert not fleet.log("worker.exited")


def test_workers_that_sleep_are_woken_by_the_new_primary(cluster: Cluster, fleet: RunningFleet) -> None:
    owner = cluster.owner_of(fleet.namespace)
    until(lambda: int(cluster.do(owner, "INFO")["blocked_clients"]) >= len(fleet.workers()), "workers that sleep")
    cluster.fail_over(owner)
    cluster.wait_for_another(owner, fleet.namespace)
    fleet.client.enqueue("note", args=["woken"], queue="default")
    fleet.wait_for("end", label="woken")
    moved_to = cluster.move_slot(fleet.namespace)
    fleet.client.enqueue("note", args=["woken again"], queue="default")
    fleet.wait_for("end", label="woken again")
    assert cluster.owner_of(fleet.namespace) is moved_to


def test_a_frozen_primary_comes_back_as_a_replica(cluster: Cluster, fleet: RunningFleet, measured: Measure) -> None:
    owner = cluster.owner_of(fleet.namespace)
    with load(cluster, fleet, durability="wait") as producer:
        producer.wait_for(200)
        cluster.freeze(owner)
        cluster.wait_for_another(owner, fleet.namespace)
        cluster.thaw(owner)
        until(lambda: cluster.role_of(owner) == "slave", "the old primary as a replica", 30)
        wait_until_work_goes_on(fleet, measured, "the return of the old primary")
        producer.wait_for(200)
    assert lost_of(fleet, producer) == set()
    assert not producer.doubtful
    assert max(extra_runs(fleet).values(), default=0) <= 1


def test_a_partitioned_primary_loses_only_what_it_accepted_alone(tmp_path: Path, measured: Measure) -> None:
    """The primary accepts enqueues from the producers on its side until it notices that it is cut off. Those that no
    replica confirmed are lost.
    """
    if reason := obstacle():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "support.partition", tmp_path, NAMESPACE_OF_FIRST_NODE],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-SHOWN_CHARACTERS:]
    found = Partition(**json.loads(done.stdout.splitlines()[-1]))
    lost_after = found.lost_unconfirmed.values()
    measured("acknowledged without a replica and lost", len(lost_after))
    measured("seconds for which a primary accepts enqueues alone", max(lost_after))
    assert not found.lost_near
    assert not found.lost_far
    assert min(lost_after) > -NODE_TIMEOUT_SECONDS, "a task was lost although the host was not cut off yet"
    assert found.repeats <= 1
    assert found.is_replica
    assert found.is_balanced


def test_a_group_ends_once_although_its_primary_is_killed(cluster: Cluster, fleet: RunningFleet) -> None:
    with rota.Client(cluster.url, fleet.namespace, durability="wait", timeout_seconds=3) as client:
        handles = {f"group {number}": _grouped(client, f"group {number}") for number in range(GROUPS)}
        killed = cluster.owner_of(fleet.namespace)
        killed.kill()
        cluster.wait_for_another(killed, fleet.namespace)
        killed.start()
        ended = [until(partial(_ended, handle), "a group's end", 30) for handle in handles.values()]
    assert {(each.total, each.done) for each in ended if each} == {(MEMBERS, MEMBERS)}
    fleet.wait_until_nothing_waits(30)
    of_groups = lines_by_group(fleet.journal())
    for label in handles:
        check_followed(of_groups[label], label)
    until(fleet.books_balance, "balanced books")


def test_a_restart_of_the_whole_cluster_loses_nothing(cluster: Cluster, fleet: RunningFleet, measured: Measure) -> None:
    """All nodes sync their append-only files with each write, so nothing that they acknowledged is lost."""
    for node in cluster.nodes:
        cluster.do(node, "CONFIG", "SET", "appendfsync", "always")
    with load(cluster, fleet) as producer:
        producer.wait_for(200)
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        cluster.wait_until_complete()
        wait_until_work_goes_on(fleet, measured, "the restart of the cluster")
        producer.wait_for(200)
    assert lost_of(fleet, producer) == set()
    assert max(extra_runs(fleet).values(), default=0) <= 1


def _grouped(client: rota.Client, label: str) -> rota.GroupHandle:
    spin: rota.Call[None] = rota.Call("spin", [label], queue="default")
    members: list[rota.Call[None] | rota.Chain] = [rota.chain(spin, spin), *[spin] * (MEMBERS - 1)]
    return client.enqueue(rota.group(members, then=after(label), id=label.replace(" ", "-")))


def _ended(handle: rota.GroupHandle) -> rota.GroupStatus | None:
    try:
        found = handle.status()
    except (rota.Uncertain, rota.Unavailable):
        return None
    return found if found.state == "ended" else None
