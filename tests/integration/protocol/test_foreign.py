"""Data that other programs wrote in place of valid entries, names and numbers. tests/faults/test_foreign_keys.py writes
such data to the keys of a running fleet.
"""

from collections.abc import Iterator

import pytest
import redis

from rota.protocol.entry import CrashKind
from rota.protocol.outcome import Done
from rota.protocol.store import Blame
from rota.protocol.tiers import NO_TIERS, QueueShare
from rota.protocol.turns import TurnStatus
from support.clock import TimedFleet
from support.foreign import NUMBERS, TEXTS
from support.protocol import LEASE_MS, SECOND_US, Fleet, body_of, one_tier, tiers
from support.servers import Server

Q = one_tier("q")
LEASE_US = LEASE_MS * 1000
NO_ENTRIES = [
    b"live q i 1 1 0 0 0 0 \xff",
    b"live\xff q i 1 1 0 0 0 0 -",
    b"live q\xff i 1 1 0 0 0 0 -",
    b"li\nve q i 1 1 0 0 0 0 -",
    b"live q x 1 1 0 0 0 0 -",
    b"live q i -1 1 0 0 0 0 -",
    b"live q i " + b"9" * 17 + b" 1 0 0 0 0 -",
    b"live q i 1 " + b"9" * 300 + b" 0 0 0 0 -",
    b"live q i 1 1 0 0 0 " + b"9" * 16 + b" -",
    b"live q i 1 1 0 0 0 0 -" + b" " * 400,
]


@pytest.fixture
def bare(server: Server) -> Iterator["redis.Redis"]:
    """Yield a client of the server that returns replies as bytes."""
    with redis.Redis(unix_socket_path=server.socket_path) as client:
        yield client


@pytest.mark.parametrize("text", NO_ENTRIES)
def test_an_invalid_entry_is_claimed_as_garbage_with_its_bytes(fleet: Fleet, bare: "redis.Redis", text: bytes) -> None:
    bare.hset(fleet.keys.tasks, "live", body_of("live"))
    bare.rpush(fleet.keys.ready_lane("q"), text)
    [claim] = fleet.turn(fleet.register(), Q).claims
    assert claim.body == text
    assert claim.entry.id.startswith("adopted-")
    assert bare.hget(fleet.keys.tasks, "live") == body_of("live")


@pytest.mark.parametrize("is_in_tasks", [False, True])
@pytest.mark.parametrize("head", [b"", b"no id", b"li\nve", b"\xff", b'["x",'])
def test_an_entry_with_an_invalid_id_is_claimed_as_garbage(
    fleet: Fleet, bare: "redis.Redis", head: bytes, *, is_in_tasks: bool
) -> None:
    fleet.push("a")
    if is_in_tasks:
        bare.hset(fleet.keys.tasks, head, body_of("a"))
    [entry] = [str(text).encode() for text in fleet.redis.lrange(fleet.keys.ready_lane("q"), 0, -1)]
    text = head + entry.removeprefix(b"a")
    bare.rpush(fleet.keys.ready_lane("q"), text)
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=2).claims
    assert [claim.body for claim in claims] == [body_of("a"), text]
    bare.rpush(fleet.keys.inflight(owner), text)
    assert fleet.turn(owner, Q).claims == claims


@pytest.mark.parametrize("text", NO_ENTRIES)
def test_an_invalid_entry_becomes_dead_when_its_owner_is_reaped(fleet: Fleet, bare: "redis.Redis", text: bytes) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    fleet.claim(owner, Q, limit=2)
    bare.lpush(fleet.keys.inflight(owner), text)
    reaped = fleet.exit(owner)
    assert [entry.id for entry in reaped.requeued] == ["a", "b"]
    [buried] = reaped.dead
    assert bare.hget(fleet.keys.tasks, buried.id) == text
    assert fleet.lane() == ["a", "b"]


def test_a_task_that_crashed_is_claimed_despite_garbage_in_the_workers_list(fleet: Fleet, bare: "redis.Redis") -> None:
    fleet.push("a")
    crashed = fleet.register()
    fleet.claim(crashed, Q)
    fleet.exit(crashed, ran=["a"])
    owner = fleet.register()
    bare.rpush(fleet.keys.inflight(owner), *NO_ENTRIES)
    [claim] = fleet.turn(owner, Q).claims
    assert (claim.entry.id, claim.entry.last_crash) == ("a", CrashKind.CRASH)
    assert fleet.turn(owner, Q, (claim, Done()), limit=0).stale == ()


@pytest.mark.parametrize(
    "ticket", [b"q d " + b"9" * 30 + b" 0 0 0 -", b"q\xff d 0 0 0 0 -", b"q d 0 0 0 0 \xff", b"\xff"]
)
def test_a_delayed_task_with_an_invalid_ticket_still_runs(fleet: Fleet, bare: "redis.Redis", ticket: bytes) -> None:
    fleet.push("a", due="+1")
    bare.hset(fleet.keys.tickets, "a", ticket)
    assert fleet.promote().moved == {"q": 1}
    assert fleet.claim(fleet.register(), Q) == ["a"]


def test_an_invalid_delayed_id_becomes_a_dead_task(fleet: Fleet, bare: "redis.Redis") -> None:
    bare.hset(fleet.keys.tasks, b"\xff", body_of("a"))
    bare.zadd(fleet.keys.delayed, {b"\xff": 1})
    promoted = fleet.promote()
    assert (promoted.moved, promoted.buried) == ({}, 1)
    [dead] = fleet.run(fleet.store.dead_page(0, 10)).tasks
    assert (dead.id, dead.body) == ("\udcff", body_of("a"))
    assert fleet.run(fleet.store.purge_dead([dead.id])) == 1
    assert bare.hlen(fleet.keys.tasks) == 0


def test_an_owner_with_an_invalid_name_expires_and_is_reaped(timed: TimedFleet, bare: "redis.Redis") -> None:
    timed.push("a")
    timed.claim(timed.register(), Q)
    held = bare.lrange(timed.keys.inflight("node:1:1"), 0, -1)
    bare.rename(timed.keys.inflight("node:1:1"), timed.keys.inflight("").encode() + b"\xff")
    bare.delete(timed.keys.owners)
    bare.zadd(timed.keys.owners, {b"\xff": 1})
    [owner] = expired_in_time(timed)
    reaped = timed.run(timed.store.reap_expired(owner, Blame()))
    assert [entry.id for entry in reaped.requeued] == ["a"]
    assert len(held) == 1
    assert bare.zcard(timed.keys.owners) == 0


def expired_in_time(timed: TimedFleet) -> tuple[str, ...]:
    """Advance the clock and sweep, repeatedly, until a sweep finds expired owners. Returns these owners, which a poller
    must then reap. Fails if there are none after four leases.
    """
    for _ in range(10):
        timed.clock_us += LEASE_US * 2 // 5
        expired = timed.run(timed.store.sweep(LEASE_MS)).expired
        if expired:
            return expired
    raise AssertionError("no owner expired")


@pytest.mark.parametrize("field", ["from", "at", "grace_until", "lease", "lease_at"])
@pytest.mark.parametrize("number", NUMBERS)
def test_expired_owners_are_found_despite_overwritten_sweep_times(timed: TimedFleet, field: str, number: bytes) -> None:
    owner = timed.register()
    expired_in_time(timed)
    timed.push("a")  # now a queue exists, so sweeps check the queues too
    timed.redis.hset(timed.keys.pulse, field, number)
    assert expired_in_time(timed) == (owner,)


@pytest.mark.parametrize("number", NUMBERS)
def test_owner_names_stay_unique_if_their_counter_is_overwritten(fleet: Fleet, number: bytes) -> None:
    used = {fleet.register() for _ in range(3)}
    fleet.redis.set(fleet.keys.lives, number)
    names = {fleet.register() for _ in range(3)}
    assert len(names) == 3
    assert not used & names
    assert all(int(name.rpartition(":")[2]) > 3 for name in names)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_overwritten_rate_does_not_close_a_queue_for_long(timed: TimedFleet, number: bytes) -> None:
    rated = tiers([QueueShare("q", interval_us=SECOND_US, burst=2)])
    owner = timed.register()
    timed.push("a")
    timed.redis.hset(timed.keys.rates, "q", number)
    timed.turn(owner, rated)
    timed.clock_us += 2 * SECOND_US
    assert timed.inflight(owner) or timed.claim(owner, rated) == ["a"]


@pytest.mark.parametrize("state", [b"\xff" * 33, b"9" * 20 + b" 000000000001", b"1e9", b""])
def test_an_overwritten_fairness_score_does_not_delay_a_queue_for_long(timed: TimedFleet, state: bytes) -> None:
    serving = one_tier("q", "other")
    owner = timed.register()
    timed.push(*(f"q{number}" for number in range(40)))
    timed.push(*(f"o{number}" for number in range(40)), queue="other")
    timed.claim(owner, serving)
    timed.redis.hset(timed.keys.rotation, "other,q q", state)
    timed.clock_us += 10 * SECOND_US
    timed.run(timed.store.sweep(LEASE_MS))
    queues = []
    for _ in range(10):
        named = timed.inflight(owner)
        queues += [claim.entry.queue for claim in timed.turn(owner, serving, held=named).claims]
    assert set(queues) == {"q", "other"}


def test_a_queue_alone_in_its_tier_is_served_if_the_rotation_is_overwritten(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    fleet.redis.set(fleet.keys.rotation, "x")
    running, *_ = fleet.turn(owner, Q, limit=3).claims
    assert fleet.run(fleet.store.return_prefetched(owner, running.entry.text, Q)) == 2
    assert fleet.run(fleet.store.reap_exited(owner, Blame(), tiers=Q)).requeued
    assert fleet.claim(fleet.register(), Q) == ["a"]


def test_a_worker_loses_its_lease_if_its_task_list_is_overwritten(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    [claim] = fleet.turn(owner, Q).claims
    fleet.redis.delete(fleet.keys.inflight(owner))
    fleet.redis.set(fleet.keys.inflight(owner), "x")
    reply = fleet.turn(owner, Q, (claim, Done()))
    assert (reply.status, reply.claims) == (TurnStatus.LOST, ())
    assert fleet.run(fleet.store.reap_exited(owner, Blame(), tiers=NO_TIERS)).alive is False
    assert fleet.redis.zscore(fleet.keys.owners, owner) is None
    assert fleet.redis.get(fleet.keys.inflight(owner)) == "x"


def test_the_overview_and_the_audit_can_be_read_despite_foreign_values(fleet: Fleet, bare: "redis.Redis") -> None:
    fleet.push("a")
    for number, text in zip(NUMBERS, TEXTS, strict=True):
        bare.hset(fleet.keys.counts, "running:q", number)
        bare.hset(fleet.keys.totals, "done", number)
        bare.hset(fleet.keys.counts, text, number)
        bare.sadd(fleet.keys.queues, text)
        overview = fleet.run(fleet.store.overview(("q",)))
        assert all(row.queue.encode() for row in overview.queues)
        assert abs(overview.queues[0].inflight) < 10**16
        assert abs(fleet.run(fleet.store.audit()).ended["done"]) < 10**16
