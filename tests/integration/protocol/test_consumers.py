"""The data about consumers that consumers and masters exchange through Redis."""

import pytest

from rota.protocol.nodes import Announced
from rota.protocol.tiers import QueueShare
from support.foreign import NUMBERS
from support.protocol import LEASE_MS, Fleet, one_tier

PLACE = "consumer-host-1-aa:0"
CAPPED = QueueShare("mail", weight=3.0, cap=2, interval_us=1000, burst=5)


def attend(fleet: Fleet, owner: str, *queues: str) -> tuple[QueueShare, ...]:
    told = fleet.run(fleet.store.attend(LEASE_MS, owner, queues))
    assert told.registered
    return told.shares


def test_a_consumer_receives_the_queue_settings_that_masters_announced(fleet: Fleet) -> None:
    fleet.run(
        fleet.store.announce(
            "node",
            b"{}",
            60_000,
            ["mail"],
            Announced(
                shares=(
                    CAPPED,
                    QueueShare("9", cap=7),
                )
            ),
        )
    )
    shares = attend(fleet, fleet.register(PLACE), "mail", "plain", "9")
    assert shares == (CAPPED, QueueShare("plain"), QueueShare("9", cap=7))


def test_a_consumer_does_not_use_the_expired_settings_of_a_master(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 0, ["mail"], Announced(shares=(CAPPED,))))
    assert attend(fleet, fleet.register(PLACE), "mail") == (QueueShare("mail"),)


def test_a_queue_served_only_by_a_consumer_counts_as_served(fleet: Fleet) -> None:
    attend(fleet, fleet.register(PLACE), "mine")
    fleet.redis.rpush(fleet.keys.ready_lane("mine"), '["work",[]]')
    [row] = fleet.run(fleet.store.overview([])).queues
    assert (row.queue, row.served, row.ready) == ("mine", True, 1)


def test_a_consumer_does_not_shorten_how_long_a_queue_counts_as_served(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 10 * LEASE_MS, ["mail"]))
    before = fleet.redis.hget(fleet.keys.served, "mail")
    attend(fleet, fleet.register(PLACE), "mail")
    assert fleet.redis.hget(fleet.keys.served, "mail") == before


def test_a_consumers_renewal_extends_its_lease_and_returns_cancelled_tasks(fleet: Fleet) -> None:
    owner = fleet.register(PLACE, lease_ms=1000)
    before = fleet.score(fleet.keys.owners, owner)
    fleet.push("a", "b")
    fleet.turn(owner, one_tier("q"), limit=2)
    fleet.run(fleet.store.cancel("b"))
    told = fleet.run(fleet.store.attend(LEASE_MS, owner, ["q"]))
    assert told.cancelled == {fleet.inflight_entries(owner)[1]}
    assert fleet.score(fleet.keys.owners, owner) > before


def test_the_renewal_of_an_unregistered_consumer_changes_nothing(fleet: Fleet) -> None:
    owner = fleet.register(PLACE)
    fleet.exit(owner)
    before = fleet.snapshot()
    assert not fleet.run(fleet.store.attend(LEASE_MS, owner, ["q"])).registered
    assert fleet.snapshot() == before


def test_consumers_are_listed_with_held_tasks_until_they_are_reaped(fleet: Fleet) -> None:
    fleet.register("node:1")
    owner = fleet.register(PLACE)
    attend(fleet, owner, "q", "r")
    fleet.push("a", "b")
    fleet.turn(owner, one_tier("q"), limit=2)
    listed = fleet.run(fleet.store.consumers())
    [row] = listed.rows
    assert (listed.total, listed.held) == (1, 2)
    assert (row.owner, row.held, row.queues) == (owner, 2, "q r")
    assert 0 < row.lease_left_us <= LEASE_MS * 1000
    fleet.exit(owner)
    assert fleet.run(fleet.store.consumers()).total == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_invalid_queue_settings_count_as_the_default_for_a_consumer(fleet: Fleet, number: bytes) -> None:
    owner = fleet.register(PLACE)
    good = b"9000000000000000"
    for text in (number, good + b" " + number, good + b" 1 2 3 " + number, number + b" 1 2 3 4"):
        fleet.redis.hset(fleet.keys.shares, "q", text)
        [share] = attend(fleet, owner, "q")
        assert share == QueueShare("q") or (share.cap, share.interval_us) == (2, 3)


def test_consumers_and_masters_continue_despite_keys_of_the_wrong_type(fleet: Fleet) -> None:
    owner = fleet.register(PLACE)
    for key in (fleet.keys.shares, fleet.keys.consumers):
        fleet.redis.set(key, "x")
    assert fleet.run(fleet.store.announce("node", b"{}", 60_000, ["mail"], Announced(shares=(CAPPED,)))).nodes == 1
    assert attend(fleet, owner, "mail") == (QueueShare("mail"),)
    assert fleet.run(fleet.store.consumers()).rows == ()
    assert not fleet.exit(owner).alive
