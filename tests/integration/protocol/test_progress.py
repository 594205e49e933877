"""The script `progress`: what running tasks say, kept as long as they run and no longer."""

import pytest

from rota.protocol.outcome import (
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    Release,
    RetryOutcome,
    Settlement,
    pack_settlement,
)
from rota.protocol.store import Blame
from rota.protocol.tiers import NO_TIERS
from rota.protocol.turns import Claim
from rota.protocol.wire import Packed
from support.protocol import Fleet, one_tier

Q = one_tier("q")
ENDS = [Done(), RetryOutcome(0), RetryOutcome(0, b"{}"), DeadOutcome(b"{}"), Release(), CancelledOutcome(), Expired()]


def claim(fleet: Fleet, *ids: str) -> tuple[str, list[Claim]]:
    fleet.push(*ids)
    owner = fleet.register()
    return owner, list(fleet.turn(owner, Q, limit=len(ids)).claims)


def told(fleet: Fleet, owner: str, claims: list[Claim], text: bytes = b"5 10 1 rows") -> int:
    return fleet.run(fleet.store.store_progress([(owner, each.entry.text, text) for each in claims]))


def kept(fleet: Fleet) -> dict[str, str]:
    return {str(task_id): str(text) for task_id, text in fleet.redis.hgetall(fleet.keys.progress).items()}


def test_what_a_running_task_says_last_is_kept_and_shown(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b")
    assert told(fleet, owner, claims[:1], b"1 - 1 ") == 1
    assert told(fleet, owner, claims[:1], b"2 - 2 ") == 1
    assert kept(fleet) == {"a": "2 - 2 "}
    assert [fleet.run(fleet.store.status(each)).progress for each in ("a", "b")] == [b"2 - 2 ", b""]


@pytest.mark.parametrize("outcome", ENDS, ids=lambda outcome: type(outcome).__name__)
def test_an_attempt_takes_its_progress_with_it_however_it_ends(fleet: Fleet, outcome: Outcome) -> None:
    owner, claims = claim(fleet, "a", "b")
    told(fleet, owner, claims)
    fleet.turn(owner, Q, (claims[0], outcome), limit=0, held=["b"])
    assert set(kept(fleet)) == {"b"}
    fleet.turn(owner, Q, (claims[1], outcome), limit=0)
    assert not fleet.redis.exists(fleet.keys.progress)


def test_a_dead_worker_and_a_lost_node_take_all_that_their_tasks_said_with_them(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b", "c")
    told(fleet, owner, claims)
    settled = Packed(4, pack_settlement(Settlement(claims[0].entry, Done())))
    fleet.run(fleet.store.reap_exited(owner, Blame(ran=(("b", b"{}"),)), settled, NO_TIERS))
    assert not fleet.redis.exists(fleet.keys.progress)
    owner = fleet.register()
    told(fleet, owner, list(fleet.turn(owner, Q, limit=1).claims))
    fleet.expire_lease(owner)
    fleet.run(fleet.store.reap_expired(owner, Blame()))
    assert not fleet.redis.exists(fleet.keys.progress)


def test_what_comes_too_late_or_from_somebody_else_is_not_kept(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a")
    other = fleet.register("node:2")
    assert told(fleet, other, claims) == 0
    fleet.turn(owner, Q, (claims[0], RetryOutcome(0)), limit=0)
    assert told(fleet, owner, claims) == 0
    fleet.promote()
    [again] = fleet.turn(owner, Q).claims
    assert (again.entry.id, told(fleet, owner, claims)) == ("a", 0), "an earlier attempt says nothing of a later one"
    assert kept(fleet) == {}


def test_a_key_of_another_type_stops_what_is_told_and_no_task(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b")
    fleet.redis.set(fleet.keys.progress, "somebody's")
    assert fleet.run(fleet.store.status("a")).state == "running"
    fleet.turn(owner, Q, (claims[0], Done()), limit=0, held=["b"])
    fleet.exit(owner)
    assert fleet.run(fleet.store.audit()).done == 1
    assert fleet.lane() == ["b"]
    assert fleet.redis.get(fleet.keys.progress) == "somebody's"
