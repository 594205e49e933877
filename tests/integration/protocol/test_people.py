"""The transitions that operators request, for example pause and revive, and the audit."""

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import DeadOutcome, Done
from rota.protocol.replies import CancelOrder, CancelStatus, parse_cancel_order
from support.protocol import Fleet, body_of, one_tier

Q = one_tier("q")


def bury(fleet: Fleet, *ids: str) -> None:
    fleet.push(*ids)
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=len(ids)).claims
    fleet.turn(owner, Q, *((claim, DeadOutcome(b'{"reason":"raised"}')) for claim in claims), limit=0)


@pytest.mark.parametrize("due", ["", "+60000000"])
def test_a_cancelled_waiting_task_is_never_run(fleet: Fleet, due: str) -> None:
    fleet.push("a", due=due)
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.CANCELLED
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1}, xx=True)
    fleet.promote()
    assert fleet.claim(fleet.register(), Q) == []
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["cancelled"], audit.missing) == (1, 0)


def test_cancelling_returns_whether_the_task_is_running_or_unknown(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.turn(fleet.register(), Q)
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.RUNNING
    assert fleet.run(fleet.store.cancel("ghost")) is CancelStatus.UNKNOWN


def test_cancelling_a_running_task_sends_an_order_to_its_node(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register("host:with:colons:8")
    one, other = fleet.turn(owner, Q, limit=2).claims
    fleet.run(fleet.store.cancel("a"))
    fleet.run(fleet.store.cancel("b", kill_after_ms=1500))
    orders = fleet.keys.orders("host:with:colons")
    assert [parse_cancel_order(str(raw).encode()) for raw in fleet.redis.lrange(orders, 0, -1)] == [
        CancelOrder(owner, "a", one.entry.ready_us, None),
        CancelOrder(owner, "b", other.entry.ready_us, 1.5),
    ]
    assert 0 < fleet.redis.ttl(orders) <= 60


def test_a_cancel_order_stays_in_its_list_until_it_is_removed(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.turn(fleet.register(), Q, limit=2)
    fleet.run(fleet.store.cancel("a"))
    fleet.run(fleet.store.cancel("b"))
    orders = fleet.keys.orders("node")
    before = fleet.redis.lrange(orders, 0, -1)
    assert [fleet.redis.blmove(orders, orders, 1, "LEFT", "LEFT") for _ in range(2)] == [before[0]] * 2
    assert fleet.redis.lrange(orders, 0, -1) == before
    assert fleet.redis.lrem(orders, 1, str(before[0])) == 1
    assert fleet.redis.blmove(orders, orders, 1, "LEFT", "LEFT") == before[1]
    assert 0 < fleet.redis.ttl(orders) <= 60


def test_the_list_of_unread_cancel_orders_is_bounded(fleet: Fleet) -> None:
    fleet.claimed("a")
    for _ in range(1005):
        fleet.run(fleet.store.cancel("a"))
    assert fleet.redis.llen(fleet.keys.orders("node")) == 1000


def test_a_running_task_is_cancelled_even_if_no_order_can_be_sent(fleet: Fleet) -> None:
    owner, _ = fleet.claimed("a")
    fleet.redis.set(fleet.keys.orders("node"), "no list")
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.RUNNING
    assert fleet.run(fleet.store.renew(20_000, [owner])).cancelled == set(fleet.inflight_entries(owner))


def test_a_cancelled_waiting_task_frees_its_unique_key_at_once(fleet: Fleet) -> None:
    fleet.run(fleet.store.pause("q"))
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.run(fleet.store.cancel("a"))
    assert not fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k"))[0].duplicate


def test_a_cancelled_running_task_holds_its_unique_key_until_it_ends(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.turn(fleet.register(), Q)
    fleet.run(fleet.store.cancel("a"))
    assert fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k"))[0].holder == "a"


def test_a_running_task_that_was_cancelled_does_not_become_dead(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    assert fleet.run(fleet.store.dead_page(0, 1)).total == 0
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1


def test_a_dead_task_cannot_be_cancelled(fleet: Fleet) -> None:
    bury(fleet, "a")
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.DEAD
    assert fleet.run(fleet.store.dead_page(0, 1)).total == 1


def test_status_returns_scheduled_running_or_unknown(fleet: Fleet) -> None:
    fleet.push("waits", due="+60000000")
    fleet.push("runs")
    fleet.turn(fleet.register(), Q)
    states = {task_id: fleet.run(fleet.store.status(task_id)).state for task_id in ("waits", "runs", "ghost")}
    assert states == {"waits": "scheduled", "runs": "running", "ghost": "unknown"}


def test_status_describes_ready_and_dead_tasks(fleet: Fleet) -> None:
    bury(fleet, "gone")
    fleet.push("ready")
    ready, gone = fleet.run(fleet.store.status("ready")), fleet.run(fleet.store.status("gone"))
    assert (ready.state, ready.queue, ready.body) == ("ready", "q", body_of("ready"))
    assert (gone.state, gone.failures, gone.attempt_records) == ("dead", 1, b'{"reason":"raised"}')


def test_a_purge_removes_ready_tasks_and_keeps_scheduled_ones(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.push("later", due="+60000000")
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["send",[]]')
    reply = fleet.run(fleet.store.purge("q"))
    assert (reply.count, reply.more) == (3, False)
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["purged"], audit.live, audit.missing) == (2, 1, 0)


def test_one_call_of_purge_removes_a_bounded_number_of_tasks(fleet: Fleet) -> None:
    fleet.push(*(f"t{number}" for number in range(500)))
    fleet.push("last")
    assert fleet.run(fleet.store.purge("q")).more is True
    assert fleet.run(fleet.store.purge("q")).count == 1


def test_a_revived_task_starts_with_fresh_counters(fleet: Fleet) -> None:
    bury(fleet, "a", "b")
    assert fleet.run(fleet.store.revive(["a", "a", "ghost"])) == 1
    assert fleet.lane() == ["a"]
    entry = fleet.turn(fleet.register(), Q).claims[0].entry
    assert (entry.failures, entry.crashes, entry.attempt) == (0, 0, 1)
    assert fleet.run(fleet.store.dead_page(0, 10)).total == 1
    assert fleet.run(fleet.store.audit()).missing == 0


def test_dead_tasks_are_purged_by_id_age_and_number(fleet: Fleet) -> None:
    bury(fleet, "a", "b", "c", "d")
    assert fleet.run(fleet.store.purge_dead(["a", "ghost"])) == 1
    fleet.redis.zadd(fleet.keys.dead, {"b": 1})
    assert fleet.run(fleet.store.trim(3_600_000_000, 10)).count == 1
    assert fleet.run(fleet.store.trim(3_600_000_000, 1)).count == 1
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["purged"], audit.live, audit.missing) == (3, 1, 0)


def test_healing_corrects_the_counts(fleet: Fleet) -> None:
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


def test_the_overview_has_configured_and_used_queues(fleet: Fleet) -> None:
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


def test_open_sets_the_protocol_version_only_in_a_new_namespace(fleet: Fleet) -> None:
    assert fleet.run(fleet.store.open()) == "1"
    fleet.redis.hset(fleet.keys.meta, "protocol", 7)
    assert fleet.run(fleet.store.open()) == "7"


def test_a_silent_node_is_not_alive_and_dropped_after_five_minutes(fleet: Fleet) -> None:
    seconds, _ = fleet.redis.time()
    fleet.redis.hset(fleet.keys.nodes, "old", f"{(seconds - 301) * 1_000_000} {{}}")
    fleet.run(fleet.store.announce("silent", b"{}", 0, [], Announced(0, 100)))
    assert fleet.run(fleet.store.announce("new", b"{}", 60_000, ["q"])).nodes == 1
    assert set(fleet.redis.hgetall(fleet.keys.nodes)) == {"new", "silent"}
    assert not fleet.redis.hgetall(fleet.keys.events_on)
    found = {node.name: node for node in fleet.run(fleet.store.nodes())}
    assert (found["new"].is_alive, found["silent"].is_alive) == (True, False)
    assert 0 < found["new"].left_seconds <= 60


# A cancelled task does not block a new enqueue


def cancel(fleet: Fleet, task_id: str) -> None:
    assert fleet.run(fleet.store.cancel(task_id)) is CancelStatus.CANCELLED


def is_new(fleet: Fleet, task: NewTask) -> bool:
    return not fleet.enqueue(task)[0].duplicate


@pytest.mark.parametrize("queue", ["q", "other"])
@pytest.mark.parametrize("due", ["", "+1"])
def test_the_id_of_a_cancelled_task_can_be_enqueued_at_once(fleet: Fleet, queue: str, due: str) -> None:
    serving, owner = one_tier("q", "other"), fleet.register()
    fleet.run(fleet.store.pause("q"))
    fleet.push("a")
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", queue, b"second", due))
    assert not is_new(fleet, NewTask("a", queue, b"third"))
    fleet.promote()
    fleet.run(fleet.store.resume("q"))
    replies = [fleet.turn(owner, serving, limit=5, held=fleet.inflight(owner)) for _ in range(2)]
    [claim] = [claim for reply in replies for claim in reply.claims]
    assert (claim.entry.id, claim.entry.queue, claim.body) == ("a", queue, b"second")
    assert len([entry for reply in replies for entry in reply.dropped]) == 1
    fleet.turn(owner, serving, (claim, Done()), limit=0)
    audit = fleet.run(fleet.store.audit())
    assert (audit.accepted, audit.ended["done"], audit.ended["cancelled"], audit.live, audit.missing) == (2, 1, 1, 0, 0)
    assert not fleet.redis.exists(fleet.keys.former)


def test_an_id_can_be_cancelled_and_enqueued_repeatedly(fleet: Fleet) -> None:
    fleet.run(fleet.store.pause("q"))
    fleet.push("a")
    for number in range(5):
        cancel(fleet, "a")
        assert is_new(fleet, NewTask("a", "q", f"body {number}".encode()))
    assert fleet.run(fleet.store.status("a")).state == "ready"
    assert fleet.redis.llen(fleet.keys.ready_lane("q")) == 6
    fleet.run(fleet.store.resume("q"))
    [claim] = fleet.turn(fleet.register(), Q, limit=9).claims
    assert claim.body == b"body 4"
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_cancelled_entry_never_runs_after_its_id_was_used_again(fleet: Fleet) -> None:
    owner, serving = fleet.register(), one_tier("q", "other")
    fleet.run(fleet.store.pause("q"))
    fleet.push("a")
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", "other", b"second"))
    [claim] = fleet.turn(owner, serving).claims
    fleet.turn(owner, serving, (claim, Done()), limit=0)
    assert fleet.run(fleet.store.status("a")).state == "done"
    assert is_new(fleet, NewTask("a", "other", b"third"))
    fleet.run(fleet.store.resume("q"))
    bodies = [claim.body for _ in range(2) for claim in fleet.turn(owner, serving, held=fleet.inflight(owner)).claims]
    assert bodies == [b"third"]
    assert fleet.run(fleet.store.audit()).missing == 0


def test_purging_a_cancelled_entry_keeps_the_live_task_with_the_same_id(fleet: Fleet) -> None:
    fleet.push("a")
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", "other", b"second"))
    assert fleet.run(fleet.store.purge("q")).count == 1
    assert fleet.claim(fleet.register(), one_tier("other")) == ["a"]
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_cancelled_running_task_keeps_its_id_until_it_ends(fleet: Fleet) -> None:
    owner = fleet.register()
    fleet.push("a")
    [claim] = fleet.turn(owner, Q).claims
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.RUNNING
    assert not is_new(fleet, NewTask("a", "q", b"second"))
    fleet.turn(owner, Q, (claim, Done()), limit=0)
    assert is_new(fleet, NewTask("a", "q", b"second"))


def test_a_tombstone_deletes_neither_key_nor_records_of_the_live_task(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", b"first", unique_key="k"))
    owner = fleet.register()
    fleet.claim(owner, Q)
    fleet.exit(owner, ran=["a"])
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", "other", b"second", unique_key="k"))
    crashed, serving = fleet.register(), one_tier("other")
    fleet.claim(crashed, serving)
    fleet.exit(crashed, ran=["a"])
    assert fleet.claim(fleet.register(), Q) == []
    assert fleet.redis.get(fleet.keys.unique("k")) == "a"
    assert fleet.redis.hexists(fleet.keys.epitaphs, "a")
    assert fleet.enqueue(NewTask("b", "q", b"", unique_key="k"))[0].holder == "a"


def test_a_dead_task_can_be_revived_while_a_tombstone_of_its_id_remains(fleet: Fleet) -> None:
    fleet.push("a")
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", "other", b"second"))
    owner, serving = fleet.register(), one_tier("other")
    [claim] = fleet.turn(owner, serving).claims
    fleet.turn(owner, serving, (claim, DeadOutcome(b"{}")), limit=0)
    assert fleet.run(fleet.store.revive(["a"])) == 1
    assert fleet.claim(fleet.register(), Q) == []
    assert fleet.claim(fleet.register(), serving) == ["a"]


def test_a_bare_item_with_the_id_of_a_tombstone_gets_a_new_id(fleet: Fleet) -> None:
    fleet.push("a")
    cancel(fleet, "a")
    assert is_new(fleet, NewTask("a", "other", b"second"))
    owner = fleet.register()
    [claim] = fleet.turn(owner, one_tier("other")).claims
    fleet.turn(owner, one_tier("other"), (claim, Done()), limit=0)
    fleet.redis.rpush(fleet.keys.ready_lane("other"), body_of("a", "other"))
    [adopted] = fleet.turn(owner, one_tier("other")).claims
    assert (adopted.entry.id[:8], adopted.body) == ("adopted-", body_of("a", "other"))
