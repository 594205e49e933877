"""Poller processes. They promote tasks in time, return the tasks of lost owners to the queues, and continue to work
after faults of the server.
"""

import json

from rota.child.child_process import EXIT_ORPHANED
from rota.child.slots import Phase
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn
from rota.telemetry import metrics
from rota.telemetry.recorder import Recorder
from support.child_harness import ChildHarness
from support.waiting import DEADLINE_SECONDS, until

TIERS = pack_tiers([domain_of([QueueShare("default")])])


def _clients(harness: ChildHarness, name: str) -> list[bytes]:
    listed: bytes = harness.connection.execute("CLIENT", "LIST")
    return [line for line in listed.splitlines() if b"name=" + name.encode() in line]


def _until_parked(harness: ChildHarness) -> None:
    until(lambda: any(b"cmd=blpop" in line for line in _clients(harness, "rota:poller")))


def _claim(harness: ChildHarness, owner: str) -> list[tuple[int, int]]:
    """Claim all ready tasks for this owner. Returns, for each task, the time when it was due and the time when it
    became ready, in microseconds.
    """
    reply = harness.run(harness.store.turn(owner, TIERS, Turn(500)))
    return [(claim.entry.due_us, claim.entry.ready_us) for claim in reply.claims]


def _until_given_back(harness: ChildHarness, owner: str) -> None:
    # Tasks that are returned because their owner was lost are put into this lane.
    lane = harness.store.keys.delayed_lane("default")
    until(lambda: not harness.inflight(owner) and harness.connection.execute("LLEN", lane))


def test_tasks_are_never_promoted_before_they_are_due(harness: ChildHarness) -> None:
    (owner,) = harness.run(harness.store.register(60_000, ["node:1"]))
    harness.start_poller()
    _until_parked(harness)
    # Each of these tasks is due before all earlier ones, so its enqueue must ring the poller's doorbell.
    for milliseconds in range(300, 0, -20):
        harness.enqueue("note", "a", due=f"+{milliseconds * 1000}")
    seen: list[tuple[int, int]] = []

    def all_claimed() -> bool:
        held = harness.run(harness.store.turn(owner, TIERS, Turn(500)))
        seen.extend((claim.entry.due_us, claim.entry.ready_us) for claim in held.claims)
        harness.connection.execute("DEL", harness.store.keys.inflight(owner))
        return len(seen) == 15

    until(all_claimed)
    assert all(ready >= due for due, ready in seen)
    assert sorted(seen) == seen


def test_an_item_added_by_zadd_is_promoted_within_seconds(harness: ChildHarness) -> None:
    harness.start_poller()
    _until_parked(harness)
    seconds = int(harness.connection.execute("TIME")[0])
    body = json.dumps(["", "default", "note", ["bare"]])
    harness.connection.execute("ZADD", harness.store.keys.delayed, seconds, body)
    until(lambda: harness.connection.execute("LLEN", harness.store.keys.delayed_lane("default")))


def test_task_of_a_lost_owner_returns_to_its_lane(harness: ChildHarness) -> None:
    task_id = harness.enqueue("note", "a")
    (owner,) = harness.run(harness.store.register(100, ["lost:1"]))
    assert _claim(harness, owner)
    poller = harness.start_poller(lease_seconds=0.5)
    until(lambda: harness.state(task_id) == "ready")
    status = harness.run(harness.store.status(task_id))
    assert (status.losses, status.crashes) == (1, 0)
    recovered = until(lambda: harness.events("task.recovered"))
    assert (recovered[0]["task_id"], recovered[0]["owner"]) == (task_id, owner)
    poller.terminate()
    assert poller.exit_code() == 0
    recorder = Recorder(poller.slot.metrics)
    counted = recorder.counter(metrics.TASKS_RECOVERED, "default", "lease_expired")
    assert counted._numbers[counted._at] == 1.0


def test_task_lost_too_often_is_dead_with_the_reason(harness: ChildHarness) -> None:
    task_id = harness.enqueue("note", "a")
    (owner,) = harness.run(harness.store.register(100, ["lost:1"]))
    assert _claim(harness, owner)
    harness.start_poller(lease_seconds=0.5, loss_limit=1)
    until(lambda: harness.state(task_id) == "dead")
    assert harness.death_record(task_id)["reason"] == "lost"


def test_tasks_held_by_an_unregistered_owner_are_returned(harness: ChildHarness) -> None:
    harness.enqueue("note", "a")
    (owner,) = harness.run(harness.store.register(500, ["node:1"]))
    assert _claim(harness, owner)
    harness.connection.execute("ZREM", harness.store.keys.owners, owner)
    harness.start_poller(lease_seconds=0.5)
    _until_given_back(harness, owner)


def test_lost_owner_with_a_corrupt_list_is_reaped(harness: ChildHarness) -> None:
    task_id = harness.enqueue("note", "a")
    broken, owner = harness.run(harness.store.register(100, ["lost:1", "lost:2"]))
    harness.connection.execute("SET", harness.store.keys.inflight(broken), "not a list")
    assert _claim(harness, owner)
    harness.start_poller(lease_seconds=0.5)
    until(lambda: harness.state(task_id) == "ready")
    until(lambda: harness.connection.execute("ZSCORE", harness.store.keys.owners, broken) is None)
    due_id = harness.enqueue("note", "b", due="+1000")
    until(lambda: harness.state(due_id) == "ready")


def test_poller_survives_a_list_name_that_is_not_text(harness: ChildHarness) -> None:
    harness.enqueue("note", "a")
    (owner,) = harness.run(harness.store.register(500, ["node:1"]))
    assert _claim(harness, owner)
    harness.connection.execute("ZREM", harness.store.keys.owners, owner)
    harness.connection.execute("RPUSH", harness.store.keys.inflight("").encode() + b"\xff\xfe", "x")
    poller = harness.start_poller(lease_seconds=0.5)
    _until_given_back(harness, owner)
    assert poller.process.poll() is None


def test_a_sweep_wakes_workers_of_a_queue_whose_wake_up_was_lost(harness: ChildHarness) -> None:
    harness.enqueue("note", "a")
    harness.connection.execute("DEL", harness.store.keys.doorbell("default"), harness.store.keys.ready)
    harness.start_poller()
    until(lambda: harness.connection.execute("LLEN", harness.store.keys.doorbell("default")))
    assert until(lambda: harness.events("poller.rescued"))


def test_poller_reconnects_after_both_connections_are_cut(harness: ChildHarness) -> None:
    harness.start_poller().until_phase(Phase.IDLE)
    _until_parked(harness)
    for line in _clients(harness, "rota:poller"):
        harness.connection.execute("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])
    task_id = harness.enqueue("note", "a", due="+1000")
    until(lambda: harness.state(task_id) == "ready")
    _until_parked(harness)


def test_poller_stops_at_once_on_sigterm(harness: ChildHarness) -> None:
    poller = harness.start_poller().until_phase(Phase.IDLE)
    _until_parked(harness)
    poller.terminate()
    assert poller.process.wait(DEADLINE_SECONDS) == 0
    assert poller.slot.phase is Phase.DRAINING


def test_poller_exits_without_a_master(harness: ChildHarness) -> None:
    poller = harness.start_poller().until_phase(Phase.IDLE)
    harness.die()
    assert poller.exit_code() == EXIT_ORPHANED
