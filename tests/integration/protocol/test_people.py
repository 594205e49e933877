"""Claims about the transitions that people ask for, and about the books."""

import pytest

from protocol import Fleet, body_of, one_tier
from rota.protocol.outcome import Dead
from rota.protocol.replies import CancelWord
from rota.protocol.store import NewTask

Q = one_tier("q")


def bury(fleet: Fleet, *ids: str) -> None:
    fleet.push(*ids)
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=len(ids)).claims
    fleet.turn(owner, Q, *((claim, Dead(b'{"reason":"raised"}')) for claim in claims), limit=0)


@pytest.mark.parametrize("due", ["", "+60000000"])
def test_a_cancelled_waiting_task_is_never_run(fleet: Fleet, due: str) -> None:
    fleet.push("a", due=due)
    assert fleet.run(fleet.store.cancel("a")) is CancelWord.CANCELLED
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1}, xx=True)
    fleet.promote()
    assert fleet.claim(fleet.register(), Q) == []
    audit = fleet.run(fleet.store.audit())
    assert (audit.cancelled, audit.missing) == (1, 0)


def test_a_running_task_is_marked_and_an_unknown_one_is_said_to_be(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.turn(fleet.register(), Q)
    assert fleet.run(fleet.store.cancel("a")) is CancelWord.RUNNING
    assert fleet.run(fleet.store.cancel("ghost")) is CancelWord.UNKNOWN


def test_a_cancelled_waiting_task_frees_its_unique_key_at_once(fleet: Fleet) -> None:
    fleet.run(fleet.store.pause("q"))
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.run(fleet.store.cancel("a"))
    assert not fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k"))[0].duplicate


def test_a_running_task_that_was_cancelled_holds_its_unique_key_to_its_end(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.turn(fleet.register(), Q)
    fleet.run(fleet.store.cancel("a"))
    assert fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k"))[0].holder == "a"


def test_a_task_cancelled_while_it_ran_to_its_death_is_cancelled(fleet: Fleet) -> None:
    fleet.push("a")
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.run(fleet.store.cancel("a"))
    fleet.turn(owner, Q, (claim, Dead(b"{}")))
    assert fleet.run(fleet.store.dead_page(0, 1)).total == 0
    assert fleet.run(fleet.store.audit()).cancelled == 1


def test_a_dead_task_cannot_be_cancelled(fleet: Fleet) -> None:
    bury(fleet, "a")
    assert fleet.run(fleet.store.cancel("a")) is CancelWord.DEAD
    assert fleet.run(fleet.store.dead_page(0, 1)).total == 1


def test_status_tells_where_an_id_stands(fleet: Fleet) -> None:
    fleet.push("waits", due="+60000000")
    fleet.push("runs")
    fleet.turn(fleet.register(), Q)
    states = {task_id: fleet.run(fleet.store.status(task_id)).state for task_id in ("waits", "runs", "ghost")}
    assert states == {"waits": "scheduled", "runs": "running", "ghost": "unknown"}


def test_status_tells_of_ready_and_dead_tasks(fleet: Fleet) -> None:
    bury(fleet, "gone")
    fleet.push("ready")
    ready, gone = fleet.run(fleet.store.status("ready")), fleet.run(fleet.store.status("gone"))
    assert (ready.state, ready.queue, ready.body) == ("ready", "q", body_of("ready"))
    assert (gone.state, gone.failures, gone.epitaph) == ("dead", 1, b'{"reason":"raised"}')


def test_a_purge_ends_what_is_ready_and_leaves_what_is_scheduled(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.push("later", due="+60000000")
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["send",[]]')
    reply = fleet.run(fleet.store.purge("q"))
    assert (reply.count, reply.more) == (3, False)
    audit = fleet.run(fleet.store.audit())
    assert (audit.purged, audit.live, audit.missing) == (2, 1, 0)


def test_a_purge_is_bounded(fleet: Fleet) -> None:
    fleet.push(*(f"t{number}" for number in range(500)))
    fleet.push("last")
    assert fleet.run(fleet.store.purge("q")).more is True
    assert fleet.run(fleet.store.purge("q")).count == 1


def test_a_revived_task_begins_anew(fleet: Fleet) -> None:
    bury(fleet, "a", "b")
    assert fleet.run(fleet.store.revive(["a", "a", "ghost"])) == 1
    assert fleet.lane() == ["a"]
    entry = fleet.turn(fleet.register(), Q).claims[0].entry
    assert (entry.failures, entry.crashes, entry.attempt) == (0, 0, 1)
    assert fleet.run(fleet.store.dead_page(0, 10)).total == 1
    assert fleet.run(fleet.store.audit()).missing == 0


def test_dead_tasks_are_forgotten_by_id_by_age_and_by_number(fleet: Fleet) -> None:
    bury(fleet, "a", "b", "c", "d")
    assert fleet.run(fleet.store.purge_dead(["a", "ghost"])) == 1
    fleet.redis.zadd(fleet.keys.dead, {"b": 1})
    assert fleet.run(fleet.store.trim(3_600_000_000, 10)).count == 1
    assert fleet.run(fleet.store.trim(3_600_000_000, 1)).count == 1
    audit = fleet.run(fleet.store.audit())
    assert (audit.purged, audit.live, audit.missing) == (3, 1, 0)


def test_healing_makes_the_counts_true_again(fleet: Fleet) -> None:
    bury(fleet, "x")
    fleet.push("waits", due="+60000000")
    fleet.push("runs")
    fleet.turn(fleet.register(), Q)
    true = fleet.redis.hgetall(fleet.keys.counts)
    fleet.redis.hset(fleet.keys.counts, mapping={"running:q": 77, "dead:q": 5, "delayed:ghost": 3})
    cursor = fleet.run(fleet.store.heal("0"))
    while cursor != "0":
        cursor = fleet.run(fleet.store.heal(cursor))
    assert fleet.redis.hgetall(fleet.keys.counts) == true
    assert not fleet.redis.exists(fleet.keys.healing)


def test_the_overview_names_configured_queues_and_those_pushed_to(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.push("c", due="+60000000")
    fleet.push("d", due="+60000000", queue="other")
    fleet.redis.zadd(fleet.keys.delayed, {"d": 1})
    fleet.turn(fleet.register(), Q)
    queues = {state.queue: state for state in fleet.run(fleet.store.overview(["idle"])).queues}
    assert set(queues) == {"idle", "q", "other"}
    q = queues["q"]
    assert (q.ready, q.scheduled, q.inflight, q.accepted) == (1, 1, 1, 3)
    assert q.oldest_ready_age_us > 0
    assert queues["other"].overdue == 1
    assert queues["other"].oldest_overdue_age_us > 1_000_000


def test_a_fresh_namespace_takes_our_protocol_version_and_keeps_another(fleet: Fleet) -> None:
    assert fleet.run(fleet.store.open()) == 1
    fleet.redis.hset(fleet.keys.meta, "protocol", 7)
    assert fleet.run(fleet.store.open()) == 7


def test_heartbeats_of_dead_nodes_are_dropped(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("old", b"{}", 0, []))
    assert fleet.run(fleet.store.announce("new", b"{}", 60_000, ["q"])) == 1
    assert list(fleet.redis.hgetall(fleet.keys.nodes)) == ["new"]
