"""Unplaced tasks: live tasks that are in no lane, list or set. The scan finds exactly these tasks. After they have been
put back, they run once.
"""

import json
from typing import Any

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DeadOutcome, Done, Outcome, Release, RetryOutcome
from rota.protocol.replies import CancelStatus, RestoreStatus
from rota.protocol.scans import BloomFilter
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH
from support.audit_walks import restore, walk
from support.protocol import Fleet, body_of, one_tier

Q = one_tier("q")


def lose_entry(fleet: Fleet, task_id: str, queue: str = "q") -> None:
    """Remove the entry of this task from its lane, as another program might do."""
    lane = fleet.keys.ready_lane(queue)
    (text,) = [text for text in map(str, fleet.redis.lrange(lane, 0, -1)) if text.startswith(f"{task_id} ")]
    fleet.redis.lrem(lane, 1, text)


def run_all(fleet: Fleet, queue: str = "q") -> list[str]:
    """Claim and end all tasks that are ready. Returns the ids in the order of the starts, so a task that starts twice
    is in the list twice.
    """
    owner, serving, ids = fleet.register(), one_tier(queue), []
    while claims := fleet.turn(owner, serving, limit=100).claims:
        ids += [claim.entry.id for claim in claims]
        fleet.turn(owner, serving, *((claim, Done()) for claim in claims), limit=0)
    return ids


def every_place(fleet: Fleet) -> None:
    """Push tasks and move them, so that there is a task in each place where a task can be."""
    fleet.push("runs", "retried", "buried", "released")
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=4).claims
    ends: tuple[Outcome, ...] = (RetryOutcome(1), DeadOutcome(b"{}"), Release())
    fleet.turn(owner, Q, *zip(claims[1:], ends, strict=True), limit=0, held=["runs"])
    fleet.promote()
    fleet.push("delayed", due="+60000000")
    fleet.push("ready")
    fleet.push("cancelled")
    fleet.run(fleet.store.cancel("cancelled"))


def test_a_scan_does_not_report_placed_tasks(fleet: Fleet) -> None:
    every_place(fleet)
    assert walk(fleet) == []


@pytest.mark.parametrize("make_seen", [lambda _: set(), BloomFilter])
def test_a_task_whose_entry_was_popped_is_found_and_restored(fleet: Fleet, make_seen: Any) -> None:
    fleet.run(fleet.store.pause("q"))
    fleet.push("a", "b", "c")
    fleet.redis.lpop(fleet.keys.ready_lane("q"))
    fleet.run(fleet.store.resume("q"))
    assert fleet.run(fleet.store.audit()).missing == 0
    assert walk(fleet, make_seen) == ["a"]
    fleet.silence()
    assert restore(fleet, "a") == [RestoreStatus.RESTORED]
    assert fleet.bell() == 1
    assert (walk(fleet), fleet.run(fleet.store.audit()).missing) == ([], 0)
    assert sorted(run_all(fleet)) == ["a", "b", "c"]
    assert not fleet.redis.exists(fleet.keys.former)
    assert fleet.run(fleet.store.audit()).live == 0


def test_tasks_of_a_deleted_lane_are_found_and_restored(fleet: Fleet) -> None:
    ids = [f"t{n:05}" for n in range(3 * BATCH)]
    for start in range(0, len(ids), BATCH):
        fleet.push(*ids[start : start + BATCH])
    fleet.push("other", queue="p")
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    assert walk(fleet) == ids
    batches = [ids[start : start + BATCH] for start in (0, 500, 1000)]
    assert {status for batch in batches for status in restore(fleet, *batch)} == {"restored"}
    assert walk(fleet) == []
    assert sorted(run_all(fleet)) == ids


def test_tasks_in_long_lanes_are_not_reported_as_unplaced(fleet: Fleet) -> None:
    for start in range(4):
        fleet.push(*(f"{start}-{n}" for n in range(BATCH)))
    fleet.push(*(f"p-{n}" for n in range(3)), queue="p")
    assert walk(fleet, BloomFilter) == []


def test_a_task_removed_from_the_delayed_set_keeps_its_counters(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, RetryOutcome(60_000_000)), limit=0)
    fleet.redis.zrem(fleet.keys.delayed, "a")
    assert walk(fleet) == ["a"]
    assert restore(fleet, "a") == [RestoreStatus.RESTORED]
    assert fleet.redis.hlen(fleet.keys.tickets) == 0
    assert fleet.turn(owner, Q).claims[0].entry.failures == 1


def test_a_cancelled_task_without_an_entry_is_ended(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    assert walk(fleet) == ["a"]
    assert restore(fleet, "a") == [RestoreStatus.ENDED]
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["cancelled"], audit.live, audit.missing) == (1, 0, 0)


def test_a_cancelled_task_leaves_no_keys_after_its_id_was_reused(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.push("a")
    assert run_all(fleet) == ["a"]
    fleet.push("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.push("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.redis.ltrim(fleet.keys.ready_lane("q"), 0, 0)
    assert run_all(fleet) == []
    assert walk(fleet) == ["a"]
    assert restore(fleet, "a") == [RestoreStatus.ENDED]
    assert (fleet.redis.exists(fleet.keys.former), fleet.run(fleet.store.audit()).missing) == (0, 0)


def test_an_unplaced_task_with_an_unknown_queue_becomes_dead(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["work",[]]')
    owner = fleet.register()
    (task_id,) = fleet.claim(owner, Q)
    fleet.redis.delete(fleet.keys.inflight(owner))
    assert walk(fleet) == [task_id]
    assert restore(fleet, task_id) == [RestoreStatus.DEAD]
    (dead,) = fleet.run(fleet.store.dead_page(0, 1)).tasks
    assert (dead.id, json.loads(dead.death_record)["reason"]) == (task_id, "unplaced")
    assert (walk(fleet), fleet.run(fleet.store.audit()).missing) == ([], 0)


def test_an_unplaced_task_with_an_unusable_lane_becomes_dead(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.redis.set(fleet.keys.ready_lane("q"), "no list")
    assert walk(fleet) == ["a"]
    assert restore(fleet, "a") == [RestoreStatus.DEAD]


def test_placed_and_ended_tasks_are_not_restored(fleet: Fleet) -> None:
    every_place(fleet)
    before = fleet.snapshot()
    assert set(restore(fleet, "runs", "buried", "delayed", "ghost")) == {RestoreStatus.PLACED}
    assert fleet.snapshot() == before


def test_a_task_restored_twice_or_by_mistake_runs_once(fleet: Fleet) -> None:
    fleet.push("a", "b", "a2")
    lose_entry(fleet, "a")
    assert restore(fleet, "a", "a") == [RestoreStatus.RESTORED, RestoreStatus.PLACED]
    # The script does not read the lane, so it restores even tasks whose entries are still in the lane.
    assert restore(fleet, "a", "b") == [
        RestoreStatus.RESTORED,
        RestoreStatus.RESTORED,
    ]
    assert sorted(run_all(fleet)) == ["a", "a2", "b"]
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["done"], audit.live, audit.missing) == (3, 0, 0)
    assert not fleet.redis.exists(fleet.keys.former)
    assert fleet.run(fleet.store.dead_page(0, 1)).total == 0


def test_a_restored_task_keeps_its_unique_key_and_can_be_cancelled(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.push("b")
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    restore(fleet, "a", "b")
    assert fleet.enqueue(NewTask("c", "q", body_of("c"), unique_key="k"))[0].holder == "a"
    assert fleet.run(fleet.store.cancel("b")) is CancelStatus.CANCELLED
    owner = fleet.register()
    (claim,) = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (claim, RetryOutcome(1)), limit=0)
    fleet.promote()
    assert run_all(fleet) == ["a"]
    assert not fleet.redis.exists(fleet.keys.unique("k"))
    assert not fleet.redis.exists(fleet.keys.former)


def test_a_task_that_moves_during_a_scan_is_not_reported(fleet: Fleet) -> None:
    """Between the steps of the scan, tasks are claimed, retried and given back, and new tasks are pushed."""
    fleet.push(*(f"t{n}" for n in range(20)))
    steps: list[str] = []

    def move(call: ScriptCall[Any]) -> None:
        owner = fleet.register()
        claims = fleet.turn(owner, Q, limit=8).claims
        ends: tuple[Outcome, ...] = (RetryOutcome(1), Release(), Done())
        fleet.turn(owner, Q, *zip(claims, ends, strict=False), limit=0, held=[claim.entry.id for claim in claims])
        fleet.exit(owner)
        fleet.promote()
        fleet.push(f"new{len(steps)}")
        steps.append(call.script.name)

    for _ in range(5):
        assert walk(fleet, between=move) == []
    assert steps.count("list_ids") > 5  # after the first search, the scan searched again for the suspected tasks


@pytest.mark.parametrize("given_back", [False, True])
def test_a_scan_misses_no_entry_of_a_lane_that_changes_meanwhile(fleet: Fleet, given_back: bool) -> None:
    fleet.push(*(f"t{n}" for n in range(BATCH)))
    fleet.push(*(f"t{n}" for n in range(BATCH, 2 * BATCH)))
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=100).claims if given_back else ()
    (lane,) = [name for name in fleet.run(fleet.store.lists()).names if name.startswith("queue:")]
    first = fleet.run(fleet.store.list_ids([lane], 0))
    releases = ((claim, Release()) for claim in claims)
    fleet.turn(owner, Q, *releases, limit=0 if given_back else 100)
    second = fleet.run(fleet.store.list_ids([lane], first.read))
    assert {f"t{n}".encode() for n in range(100, 2 * BATCH)} <= {*first.ids, *second.ids}


def test_a_tombstone_does_not_hide_an_unplaced_task(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.push("a", queue="p")
    assert walk(fleet) == []
    lose_entry(fleet, "a", "p")
    assert walk(fleet) == ["a"]
    assert restore(fleet, "a") == [RestoreStatus.RESTORED]
    assert (run_all(fleet), run_all(fleet, "p")) == ([], ["a"])
    assert not fleet.redis.exists(fleet.keys.former)


def test_an_unplaced_task_with_an_invalid_id_becomes_dead(fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.tasks, "not a name", body_of("a"))
    assert walk(fleet) == ["not a name"]
    assert restore(fleet, "not a name") == [RestoreStatus.DEAD]
    assert walk(fleet) == []


def test_a_scan_for_unplaced_tasks_changes_nothing(fleet: Fleet) -> None:
    every_place(fleet)
    fleet.push("lost", queue="p")
    lose_entry(fleet, "lost", "p")
    before = fleet.snapshot()
    assert walk(fleet) == ["lost"]
    assert fleet.snapshot() == before
