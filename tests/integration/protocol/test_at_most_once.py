"""Tasks with a start mark. If the owner of such a task dies, the task becomes dead and is never started again."""

import pytest

from rota.protocol.entry import CrashKind, parse_entry
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import Done, Expired, Outcome, Release, RetryOutcome, Settlement
from rota.protocol.replies import Reaped
from rota.protocol.store import Blame
from rota.protocol.turns import Claim
from support.protocol import Fleet, body_of, one_tier, pack_settlements

Q = one_tier("q")
CRASH_RECORD = b'{"reason":"crashed","error":"killed by SIGKILL","cause":"signal"}'
LOSS = b'{"reason":"lost","error":"its node was lost"}'


def mark_started(fleet: Fleet, owner: str, claim: Claim) -> Claim:
    """Set the start mark of a task, as a worker does before it calls the function. Returns the claim with the changed
    entry.
    """
    started = fleet.run(fleet.store.mark_started(owner, claim.entry.text))
    assert started
    return Claim(parse_entry(started), claim.body)


def started(fleet: Fleet, *ids: str) -> tuple[str, Claim]:
    """Let a new owner claim these tasks, and set the start mark of the first one. Returns the owner and the first
    claim.
    """
    owner, claim = fleet.claimed(*ids)
    return owner, mark_started(fleet, owner, claim)


def expire(fleet: Fleet, owner: str) -> Reaped:
    fleet.expire_lease(owner)
    return fleet.run(fleet.store.reap_expired(owner, Blame(loss_record=LOSS)))


@pytest.mark.parametrize(
    ("flag", "marked"),
    [("-", "b"), ("u", "ub"), ("3", "3b"), ("u12", "u12b"), ("C", "bC"), ("uC", "ubC"), ("u3L", "u3bL"), ("b", "b")],
)
def test_a_start_mark_does_not_erase_the_last_crash_of_an_entry(fleet: Fleet, flag: str, marked: str) -> None:
    owner = fleet.register()
    text = f"a q i 1 1 0 0 0 0 {flag}"
    fleet.redis.rpush(fleet.keys.inflight(owner), text)
    assert fleet.run(fleet.store.mark_started(owner, text.encode())) == f"a q i 1 1 0 0 0 0 {marked}".encode()
    # A turn returns each held task that the worker did not name, so this task is returned again.
    [claim] = fleet.turn(owner, Q).claims
    assert (claim.entry.flag, claim.entry.is_marked_started) == (marked, True)
    assert claim.entry.last_crash == ({"C": CrashKind.CRASH, "L": CrashKind.LOST}.get(flag[-1]))


def test_marking_a_start_twice_has_no_further_effect_and_keeps_the_order(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    claim = fleet.turn(owner, Q, limit=3).claims[1]
    first = mark_started(fleet, owner, claim)
    before = fleet.snapshot()
    assert mark_started(fleet, owner, claim) == mark_started(fleet, owner, first) == first
    assert fleet.snapshot() == before
    assert fleet.inflight(owner) == ["a", "b", "c"]


def test_only_the_owner_of_a_task_can_mark_it_started(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Release()), limit=0)
    before = fleet.snapshot()
    assert fleet.run(fleet.store.mark_started(owner, claim.entry.text)) == b""
    assert fleet.snapshot() == before
    other = fleet.register()
    fleet.turn(other, Q)
    expire(fleet, owner)
    assert fleet.run(fleet.store.mark_started(owner, claim.entry.text)) == b""


def test_an_unregistered_owner_cannot_mark_a_start(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.redis.zrem(fleet.keys.owners, owner)
    assert fleet.run(fleet.store.mark_started(owner, claim.entry.text)) == b""


@pytest.mark.parametrize("blamed", [True, False])
def test_a_crash_makes_only_the_started_task_dead(fleet: Fleet, blamed: bool) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, _ = fleet.turn(owner, Q, limit=2).claims
    mark_started(fleet, owner, first)
    crash = CrashKind.SIGNAL if blamed else None  # without blame, as if the master killed the worker during a shutdown
    reply = fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD),), crash=crash))
    [dead] = reply.dead
    assert (dead.id, dead.is_marked_started, dead.crashes, dead.releases) == ("a", True, blamed, not blamed)
    assert [entry.id for entry in reply.requeued] == ["b"]
    found = fleet.run(fleet.store.status("a"))
    assert found.state == "dead"
    assert found.attempt_records == CRASH_RECORD.replace(b"crashed", b"at_most_once")
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_started_task_is_dead_after_the_loss_of_its_node(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    assert [(entry.id, entry.losses) for entry in expire(fleet, owner).dead] == [("a", 1)]
    assert fleet.run(fleet.store.status("a")).attempt_records == LOSS.replace(b"lost", b"at_most_once", 1)
    assert not fleet.lane()


def test_a_started_task_lost_without_a_record_has_the_reason_at_most_once(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    fleet.expire_lease(owner)
    fleet.run(fleet.store.reap_expired(owner, Blame()))
    assert fleet.run(fleet.store.status("a")).attempt_records.startswith(b'{"reason":"at_most_once"')


def test_a_started_task_of_an_orphaned_owner_becomes_dead(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    fleet.redis.zrem(fleet.keys.owners, owner)
    assert fleet.run(fleet.store.adopt_orphans(20_000, [owner])) == 1
    assert [entry.id for entry in expire(fleet, owner).dead] == ["a"]


def test_a_started_task_is_dead_even_if_not_reported_as_running(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    assert [entry.id for entry in fleet.exit(owner).dead] == ["a"]
    assert b'"at_most_once"' in fleet.run(fleet.store.status("a")).attempt_records


def test_an_outcome_left_by_a_dead_worker_is_settled(fleet: Fleet) -> None:
    owner, claim = started(fleet, "a")
    reply = fleet.reap(owner, ["a"], (claim, Done()))
    assert (reply.settled, reply.dead, reply.requeued) == (1, (), ())
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


@pytest.mark.parametrize("outcome", [Release(), RetryOutcome(0), Expired()])
def test_settling_a_started_task_removes_its_start_mark(fleet: Fleet, outcome: Outcome) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    owner = fleet.register()
    [claim] = fleet.turn(owner, Q).claims
    claim = mark_started(fleet, owner, claim)
    assert claim.entry.flag == "ub"
    fleet.turn(owner, Q, (claim, outcome), limit=0)
    fleet.promote()
    claims = fleet.turn(owner, Q).claims
    assert [each.entry.flag for each in claims] == ([] if outcome == Expired() else ["u"])
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_late_outcome_of_a_dead_task_changes_nothing(fleet: Fleet) -> None:
    owner, claim = started(fleet, "a")
    expire(fleet, owner)
    before = fleet.snapshot()
    reply = fleet.turn(owner, Q, (claim, Done()), limit=0)
    assert reply.stale == (claim.entry.text,)
    assert fleet.snapshot() == before


def test_returning_prefetched_tasks_keeps_the_running_one_marked_or_not(fleet: Fleet) -> None:
    for text in ("as it was claimed", "as it stands"):
        fleet.push("a", "b")
        owner = fleet.register()
        first, behind = fleet.turn(owner, Q, limit=2).claims
        marked = mark_started(fleet, owner, first)
        running = first if text == "as it was claimed" else marked
        assert fleet.run(fleet.store.return_prefetched(owner, running.entry.text, Q)) == 1
        assert (fleet.inflight(owner), fleet.lane()) == (["a"], [behind.entry.id])
        fleet.turn(owner, Q, (marked, Done()), limit=0)
        fleet.turn(owner, Q, (fleet.turn(owner, Q).claims[0], Done()), limit=0)


def test_a_prefetched_task_with_a_start_mark_is_dead_when_returned(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, behind = fleet.turn(owner, Q, limit=2).claims
    mark_started(fleet, owner, behind)
    assert fleet.run(fleet.store.return_prefetched(owner, first.entry.text, Q)) == 1
    assert (fleet.run(fleet.store.status("b")).state, fleet.lane()) == ("dead", [])


def test_a_started_task_that_was_cancelled_ends_as_cancelled(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    fleet.run(fleet.store.cancel("a"))
    assert fleet.exit(owner, ["a"]).dead == ()
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1


def test_a_revived_task_has_no_start_mark(fleet: Fleet) -> None:
    owner, _ = started(fleet, "a")
    fleet.exit(owner, ["a"])
    assert fleet.run(fleet.store.revive(["a"])) == 1
    [claim] = fleet.turn(fleet.register(), Q).claims
    assert (claim.entry.id, claim.entry.is_marked_started) == ("a", False)


def test_the_second_outcome_of_an_entry_is_reported_as_stale(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    late = pack_settlements([Settlement(claim.entry, Done()), Settlement(claim.entry, RetryOutcome(0, CRASH_RECORD))])
    reply = fleet.run(fleet.store.reap_exited(owner, Blame(ran=(("a", CRASH_RECORD),)), late))
    assert (reply.settled, reply.stale) == (1, (claim.entry.text,))
