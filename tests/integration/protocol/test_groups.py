"""Groups. The transition that ends the last member enqueues the follow-up task exactly once."""

import pytest

from rota.protocol.groups import AddStatus, CancelledGroup, GroupEnd, GroupPhase, Into, Opening, Room
from rota.protocol.new_tasks import Enqueued, NewMember, NewTask, follow_text
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome
from rota.protocol.replies import CancelStatus
from rota.server.server_errors import ServerError
from support.grouping import Grouping
from support.protocol import body_of
from support.waiting import until

DEAD = DeadOutcome(b'{"reason":"raised"}')


def test_the_follow_up_is_enqueued_once_all_members_have_ended_in_any_way(groups: Grouping) -> None:
    groups.open("g", "a", "b", "c", "d", then="end")
    for outcome in (Done(), DEAD, CancelledOutcome()):
        groups.run_one(outcome)
    assert groups.fleet.lane() == ["d"]
    groups.run_one(Expired())
    assert groups.fleet.lane() == ["end"]
    state = groups.state("g")
    assert state.phase is GroupPhase.ENDED
    assert (state.total, state.left) == (4, 0)
    assert state.ended == {"done": 1, "dead": 1, "cancelled": 1, "expired": 1, "purged": 0}
    assert state.followed_by == "end"


@pytest.mark.parametrize(("outcome", "follows"), [(DEAD, "sorry"), (Done(), "end"), (Expired(), "end")])
def test_on_dead_is_enqueued_instead_of_then_after_a_dead_member(
    groups: Grouping, outcome: Outcome, follows: str
) -> None:
    groups.open("g", "a", "b", then="end", on_dead="sorry")
    groups.run_one(outcome)
    groups.run_one(Done())
    assert groups.fleet.lane() == [follows]


def test_a_chain_is_one_member_until_its_last_task_ends(groups: Grouping) -> None:
    following = follow_text([groups.task("b"), groups.task("c")])
    groups.add([NewMember(groups.task("a"), following)], Into("g", groups.opening("end"), closes=True))
    for task_id in ("a", "b"):
        assert groups.run_one(Done()) == task_id
        assert (groups.state("g").left, groups.state("g").ended["done"]) == (1, 0)
    groups.run_one(Done())
    assert groups.fleet.lane() == ["end"]
    assert (groups.state("g").total, groups.state("g").ended["done"]) == (1, 1)


def test_a_group_does_not_end_before_it_is_closed(groups: Grouping) -> None:
    groups.add([NewMember(groups.task("a"))], Into("g", groups.opening("end")))
    groups.run_one(Done())
    assert groups.fleet.lane() == []
    assert groups.fleet.run(groups.fleet.store.close_group("g"))
    assert groups.fleet.lane() == ["end"]
    assert not groups.fleet.run(groups.fleet.store.close_group("g"))


def test_a_group_without_members_ends_at_once(groups: Grouping) -> None:
    groups.add([], Into("g", groups.opening("end"), closes=True))
    assert groups.fleet.lane() == ["end"]


def test_members_can_be_added_to_a_closed_group_until_it_ends(groups: Grouping) -> None:
    groups.open("g", "a", then="end")
    assert groups.add([NewMember(groups.task("b"))], Into("g")).status is AddStatus.OK
    groups.run_one(Done())
    assert groups.fleet.lane() == ["b"]
    groups.run_one(Done())
    assert groups.add([NewMember(groups.task("c"))], Into("g")).status is AddStatus.ENDED
    assert groups.fleet.lane() == ["end"]
    assert groups.add([NewMember(groups.task("c"))], Into("unknown")).status is AddStatus.ENDED


def test_a_cancelled_group_accepts_no_members_and_enqueues_no_follow_up(groups: Grouping) -> None:
    groups.open("g", "a", "b", then="end", on_dead="sorry")
    claim = groups.claim()
    reply = groups.fleet.run(groups.fleet.store.cancel_group("g"))
    assert (reply.is_known, reply.cursor, sorted(reply.ids)) == (True, "0", ["a", "b"])
    assert groups.add([NewMember(groups.task("c"))], Into("g")).status is AddStatus.ENDED
    statuses = {task_id: groups.fleet.run(groups.fleet.store.cancel(task_id)) for task_id in reply.ids}
    assert statuses == {"a": CancelStatus.RUNNING, "b": CancelStatus.CANCELLED}
    groups.settle(claim, CancelledOutcome())
    state = groups.state("g")
    assert (state.phase, state.is_cancelled, state.ended["cancelled"], state.followed_by) == (
        GroupPhase.ENDED,
        True,
        2,
        "",
    )
    assert groups.fleet.lane() == ["b"]  # only the entry of the cancelled task is left, until a claim drops it
    assert groups.fleet.run(groups.fleet.store.cancel_group("g")) == CancelledGroup(is_known=False, cursor="0", ids=())


def test_a_chain_of_a_cancelled_group_does_not_continue(groups: Grouping) -> None:
    groups.add([NewMember(groups.task("a"), follow_text([groups.task("b")]))], Into("g", Opening(), closes=True))
    claim = groups.claim()
    groups.fleet.run(groups.fleet.store.cancel_group("g"))
    groups.settle(claim, Done())
    assert groups.fleet.lane() == []
    assert (groups.state("g").phase, groups.state("g").ended["cancelled"]) == (GroupPhase.ENDED, 1)


def test_repeating_a_call_with_the_same_nonce_adds_no_member_twice(groups: Grouping) -> None:
    members = [NewMember(groups.task("a"))]
    command = groups.fleet.store.add_members("once", members, Into("g", groups.opening("end"), cursor=0))
    first = groups.fleet.run(command)
    assert (first.status, first.cursor, first.enqueued) == (AddStatus.OK, 1, (Enqueued(),))
    groups.run_one(Done())
    assert groups.fleet.run(command) == first
    assert (groups.state("g").total, groups.state("g").left, groups.state("g").cursor) == (1, 0, 1)


def test_an_interrupted_enqueue_of_a_group_continues_where_it_stopped(groups: Grouping) -> None:
    into = Into("g", groups.opening("end"), cursor=0)
    assert groups.add([NewMember(groups.task(one)) for one in "ab"], into).cursor == 2
    again = groups.add([NewMember(groups.task(one)) for one in "xy"], into)
    assert (again.status, again.cursor, again.enqueued) == (AddStatus.CURSOR, 2, ())
    added = groups.add([NewMember(groups.task("c"))], Into("g", Opening(), cursor=again.cursor, closes=True))
    assert (added.status, added.cursor) == (AddStatus.OK, 3)
    assert [groups.run_one(Done()) for _ in range(4)] == ["a", "b", "c", "end"]


def test_a_duplicate_task_does_not_become_a_member(groups: Grouping) -> None:
    groups.fleet.push("a")
    added = groups.open("g", "a", "b", then="end")
    assert [answer.duplicate for answer in added.enqueued] == [True, False]
    assert groups.state("g").total == 1
    groups.run_one(Done())
    assert groups.state("g").left == 1
    groups.run_one(Done())
    assert groups.fleet.lane() == ["end"]


def test_a_chain_ends_before_a_task_whose_id_already_has_a_live_task(groups: Grouping) -> None:
    groups.fleet.push("b")
    following = follow_text([groups.task("b"), groups.task("c")])
    groups.add([NewMember(NewTask("a", "p", body_of("a", "p")), following)], Into("g", Opening(), closes=True))
    groups.run_one(Done(), "p")
    assert groups.fleet.lane() == ["b"]
    assert (groups.state("g").phase, groups.state("g").ended["cancelled"]) == (GroupPhase.ENDED, 1)


def test_a_group_ends_without_a_follow_up_if_that_is_a_duplicate(groups: Grouping) -> None:
    """The follow-up task of this group is a duplicate, because a live task already has the same id."""
    groups.open("g", "a", then="b")
    groups.fleet.push("b")
    groups.run_one(Done())
    assert (groups.state("g").phase, groups.state("g").followed_by) == (GroupPhase.ENDED, "")
    assert groups.fleet.run(groups.fleet.store.groups()).ended[GroupEnd.NOTHING] == 1


def test_the_next_task_of_a_chain_runs_despite_a_tombstone_of_its_id(groups: Grouping) -> None:
    fleet = groups.fleet
    fleet.push("b")
    fleet.run(fleet.store.cancel("b"))
    fleet.push("b", due="+60000000")
    fleet.run(fleet.store.cancel("b"))
    assert fleet.lane() == ["b"]  # this entry belongs to the first incarnation of the task
    groups.add([NewMember(NewTask("a", "p", body_of("a", "p")), follow_text([groups.task("b")]))], Into())
    groups.run_one(Done(), "p")
    assert groups.run_one(Done()) == "b"
    assert fleet.lane() == []
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_member_with_an_unusable_lane_counts_as_dead(groups: Grouping) -> None:
    fleet = groups.fleet
    fleet.redis.set(fleet.keys.ready_lane("broken"), "no list")
    following = follow_text([NewTask("b", "broken", body_of("b", "broken")), groups.task("c")])
    groups.add([NewMember(groups.task("a"), following)], Into("g", groups.opening("end", "sorry"), closes=True))
    groups.run_one(Done())
    assert groups.fleet.lane() == ["sorry"]
    assert (groups.state("g").ended["dead"], groups.state("g").left) == (1, 0)
    assert fleet.redis.zrange(fleet.keys.dead, 0, -1) == ["b"]


def test_a_revived_task_has_left_its_group(groups: Grouping) -> None:
    groups.open("g", "a", "b", then="end")
    groups.run_one(DEAD)
    groups.fleet.run(groups.fleet.store.revive(["a"]))
    assert (groups.state("g").left, groups.state("g").ended["dead"]) == (1, 1)
    groups.run_one(Done())
    assert sorted(groups.fleet.lane()) == ["a", "end"]
    assert sorted(groups.run_one(Done()) for _ in range(2)) == ["a", "end"]
    assert groups.state("g").ended["done"] == 1


def test_purged_and_crashed_members_count_as_ended(groups: Grouping) -> None:
    groups.open("g", "a", "b", "c", then="end")
    claim = groups.claim()
    groups.fleet.run(groups.fleet.store.mark_started(groups.owner, claim.entry.text))
    assert groups.fleet.run(groups.fleet.store.purge("q")).count == 2
    assert groups.state("g").left == 1
    groups.fleet.exit(groups.owner, ran=["a"])
    assert (groups.state("g").ended["purged"], groups.state("g").ended["dead"], groups.state("g").left) == (2, 1, 0)
    assert groups.fleet.lane() == ["end"]


def test_a_waiting_client_is_woken_for_room_in_a_group_and_for_its_end(groups: Grouping) -> None:
    groups.open("g", "a", "b", "c", then="end")
    fleet, store = groups.fleet, groups.fleet.store
    replies = fleet.keys.replies("client")
    assert fleet.run(store.await_room("client", "g", 3)) == Room(has_come=True, left=3)
    assert fleet.run(store.await_room("client", "g", 1)) == Room(has_come=False, left=3)
    assert fleet.run(store.await_group_end("client", "g")) == Room(has_come=False, left=3)
    groups.run_one(Done())
    assert fleet.redis.lrange(replies, 0, -1) == []
    groups.run_one(Done())
    assert fleet.redis.lrange(replies, 0, -1) == ["group g"]
    groups.run_one(Done())
    assert fleet.redis.lrange(replies, 0, -1) == ["group g"] * 2
    assert fleet.run(store.await_group_end("client", "g")) == Room(has_come=True, left=None)
    assert fleet.run(store.await_room("client", "unknown", 1)) == Room(has_come=True, left=None)


def test_groups_that_have_not_ended_are_listed(groups: Grouping) -> None:
    for name in ("g", "h", "i"):
        groups.open(name, f"{name}-a", then=f"{name}-end")
    groups.run_one(Done())
    found = groups.fleet.run(groups.fleet.store.groups())
    assert (found.total, [group.id for group in found.page]) == (2, ["h", "i"])
    assert (found.page[0].then, found.page[0].on_dead) == ("h-end", "")
    assert found.ended == {GroupEnd.THEN: 1, GroupEnd.ON_DEAD: 0, GroupEnd.NOTHING: 0, GroupEnd.CANCELLED: 0}
    assert [group.id for group in groups.fleet.run(groups.fleet.store.groups(1, 1)).page] == ["i"]


def test_keys_of_an_ended_group_expire_within_a_minute(groups: Grouping) -> None:
    groups.open("g", "a", "b", then="end", on_dead="sorry")
    groups.fleet.run(groups.fleet.store.await_group_end("client", "g"))
    for _ in ("a", "b", "end"):
        groups.run_one(Done())
    record = groups.fleet.keys.group("g")
    assert groups.kept() == [record]
    assert 0 < groups.fleet.redis.pttl(record) < 60_000
    groups.fleet.redis.pexpire(record, 1)
    until(lambda: not groups.kept())
    assert groups.fleet.run(groups.fleet.store.group("g")) is None


@pytest.mark.parametrize("following", [b"no header", b"a q - 9\nshort", b"a no-queue-delayed - 1\nx", b"a q - 1\nx\n"])
def test_an_invalid_following_task_is_refused_without_changes(groups: Grouping, following: bytes) -> None:
    before = groups.fleet.snapshot()
    with pytest.raises(ServerError, match="ROTA not a task that can follow"):
        groups.add([NewMember(groups.task("a"), following)], Into())
    with pytest.raises(ServerError, match="ROTA not a task that can follow"):
        groups.add([], Into("g", Opening(following)))
    assert groups.fleet.snapshot() == before


def test_a_server_without_memory_refuses_members_but_groups_can_end(groups: Grouping) -> None:
    groups.open("g", "a", then="end")
    claim = groups.claim()
    groups.fleet.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerError):
            groups.add([NewMember(groups.task("b"))], Into("g"))
        groups.settle(claim, Done())
    finally:
        groups.fleet.redis.config_set("maxmemory", 0)
    assert groups.fleet.lane() == ["end"]


def test_a_following_task_cannot_have_a_unique_key() -> None:
    with pytest.raises(ValueError, match="cannot be unique: b"):
        follow_text([NewTask("b", "q", b"[]", unique_key="k")])
