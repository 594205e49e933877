"""The script `progress`. It stores the progress that a running task reports, which is deleted when the task ends."""

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


def report(fleet: Fleet, owner: str, claims: list[Claim], text: bytes = b"5 10 1 rows") -> int:
    return fleet.run(fleet.store.store_progress([(owner, each.entry.text, text) for each in claims]))


def stored(fleet: Fleet) -> dict[str, str]:
    return {str(task_id): str(text) for task_id, text in fleet.redis.hgetall(fleet.keys.progress).items()}


def test_the_last_progress_of_a_running_task_is_stored_and_shown(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b")
    assert report(fleet, owner, claims[:1], b"1 - 1 ") == 1
    assert report(fleet, owner, claims[:1], b"2 - 2 ") == 1
    assert stored(fleet) == {"a": "2 - 2 "}
    assert [fleet.run(fleet.store.status(each)).progress for each in ("a", "b")] == [b"2 - 2 ", b""]


@pytest.mark.parametrize("outcome", ENDS, ids=lambda outcome: type(outcome).__name__)
def test_progress_is_deleted_when_the_attempt_ends(fleet: Fleet, outcome: Outcome) -> None:
    owner, claims = claim(fleet, "a", "b")
    report(fleet, owner, claims)
    fleet.turn(owner, Q, (claims[0], outcome), limit=0, held=["b"])
    assert set(stored(fleet)) == {"b"}
    fleet.turn(owner, Q, (claims[1], outcome), limit=0)
    assert not fleet.redis.exists(fleet.keys.progress)


def test_reaping_deletes_the_progress_of_held_tasks(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b", "c")
    report(fleet, owner, claims)
    settled = Packed(4, pack_settlement(Settlement(claims[0].entry, Done())))
    fleet.run(fleet.store.reap_exited(owner, Blame(ran=(("b", b"{}"),)), settled, NO_TIERS))
    assert not fleet.redis.exists(fleet.keys.progress)
    owner = fleet.register()
    report(fleet, owner, list(fleet.turn(owner, Q, limit=1).claims))
    fleet.expire_lease(owner)
    fleet.run(fleet.store.reap_expired(owner, Blame()))
    assert not fleet.redis.exists(fleet.keys.progress)


def test_progress_from_an_earlier_attempt_or_another_worker_is_not_stored(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a")
    other = fleet.register("node:2")
    assert report(fleet, other, claims) == 0
    fleet.turn(owner, Q, (claims[0], RetryOutcome(0)), limit=0)
    assert report(fleet, owner, claims) == 0
    fleet.promote()
    [again] = fleet.turn(owner, Q).claims
    assert (again.entry.id, report(fleet, owner, claims)) == ("a", 0), (
        "the report of an earlier attempt is not that of a later one"
    )
    assert stored(fleet) == {}


def test_tasks_run_although_the_progress_key_has_the_wrong_type(fleet: Fleet) -> None:
    owner, claims = claim(fleet, "a", "b")
    fleet.redis.set(fleet.keys.progress, "somebody's")
    assert fleet.run(fleet.store.status("a")).state == "running"
    fleet.turn(owner, Q, (claims[0], Done()), limit=0, held=["b"])
    fleet.exit(owner)
    assert fleet.run(fleet.store.audit()).ended["done"] == 1
    assert fleet.lane() == ["b"]
    assert fleet.redis.get(fleet.keys.progress) == "somebody's"
