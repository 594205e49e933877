"""Groups end even if another program deleted or overwrote some of their keys."""

import pytest

from rota.protocol.groups import GroupPhase, HealedMembers
from rota.protocol.outcome import DeadOutcome, Done
from support.grouping import Grouping

DEAD = DeadOutcome(b'{"reason":"raised"}')


def test_a_task_restored_after_its_lane_was_deleted_is_still_a_member(groups: Grouping) -> None:
    groups.open("g", "a", then="end")
    fleet = groups.fleet
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    fleet.run(fleet.store.restore(["a"]))
    assert groups.run_one(Done()) == "a"
    assert fleet.lane() == ["end"]


def test_a_cancelled_member_whose_entry_was_deleted_ends_when_restored(groups: Grouping) -> None:
    groups.open("g", "a", then="end")
    fleet = groups.fleet
    groups.claim()
    fleet.run(fleet.store.cancel("a"))
    fleet.redis.delete(fleet.keys.inflight(groups.owner))
    fleet.run(fleet.store.restore(["a"]))
    assert (groups.state("g").phase, groups.state("g").ended["cancelled"]) == (GroupPhase.ENDED, 1)
    assert fleet.lane() == ["end"]


def test_healing_counts_members_that_an_older_node_ended(groups: Grouping) -> None:
    """A node of an earlier version, which does not know about groups, has ended the tasks."""
    groups.open("g", "a", "b", "c", then="end")
    fleet = groups.fleet
    hidden = f"{fleet.keys.members}-hidden"
    fleet.redis.rename(fleet.keys.members, hidden)
    for outcome in (Done(), DEAD):
        groups.run_one(outcome)
    fleet.redis.rename(hidden, fleet.keys.members)
    assert fleet.run(fleet.store.heal_members("")) == HealedMembers("0", 2)
    assert (groups.state("g").ended["done"], groups.state("g").ended["dead"], groups.state("g").left) == (1, 1, 1)
    assert fleet.run(fleet.store.heal_members("")) == HealedMembers("0", 0)
    groups.run_one(Done())
    assert fleet.lane() == ["end"]


def test_healing_removes_member_records_of_tasks_that_do_not_exist(groups: Grouping) -> None:
    fleet = groups.fleet
    fleet.redis.hset(fleet.keys.members, mapping={"nobody": "", "nothing": " ", "nowhere": "-\nno header"})
    assert fleet.run(fleet.store.heal_members("")) == HealedMembers("0", 3)
    assert groups.kept() == []


def test_healing_continues_chains_whose_tasks_ended_long_ago(groups: Grouping) -> None:
    """The tasks ended so long ago that a query for a single id no longer finds them, but their chains must continue."""
    fleet = groups.fleet
    for number in range(20):
        groups.chain(f"a{number}", f"b{number}")
    hidden = f"{fleet.keys.members}-hidden"
    fleet.redis.rename(fleet.keys.members, hidden)
    for _ in range(20):
        groups.run_one(Done())
    fleet.redis.rename(hidden, fleet.keys.members)
    fleet.redis.rename(fleet.keys.ends, fleet.keys.sealed_ends(20))
    fleet.redis.rpush(fleet.keys.ends_sealed, 20)
    fleet.redis.set(fleet.keys.ends, "\n!1 done 1 node\nother q i 1 1 0 0 0 0 -\n " + "x" * 4_000_000)
    cursor, calls = "", 0
    while cursor != "0":
        cursor, _ = fleet.run(fleet.store.heal_members(cursor))
        calls += 1
    assert calls > 1
    assert sorted(fleet.lane()) == sorted(f"b{number}" for number in range(20))


def test_a_group_with_deleted_members_ends_when_it_is_cancelled(groups: Grouping) -> None:
    groups.open("g", "a", "b", then="end")
    groups.fleet.redis.delete(groups.fleet.keys.members)
    groups.fleet.run(groups.fleet.store.cancel_group("g"))
    assert (groups.state("g").phase, groups.state("g").ended["purged"]) == (GroupPhase.ENDED, 2)


@pytest.mark.parametrize("key", ["members", "group", "group_members"])
def test_member_tasks_still_run_if_a_key_of_their_group_has_the_wrong_type(groups: Grouping, key: str) -> None:
    groups.open("g", "a", "b", then="end")
    keys = groups.fleet.keys
    name = keys.members if key == "members" else getattr(keys, key)("g")
    groups.fleet.redis.delete(name)
    groups.fleet.redis.set(name, "foreign")
    assert [groups.run_one(Done()) for _ in range(2)] == ["a", "b"]
    assert groups.fleet.run(groups.fleet.store.audit()).missing == 0
