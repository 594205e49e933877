"""The records of ended tasks: how many and which of them Redis keeps, and what a query about an ended task returns."""

from collections.abc import Sequence

import pytest

from rota.protocol.nodes import Announced
from rota.protocol.outcome import (
    DONE,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Ended,
    Expired,
    Outcome,
    Release,
    RetryOutcome,
    RunRecord,
)
from rota.protocol.scans import find_task
from rota.protocol.scripts import follow
from rota.protocol.store import Blame
from rota.protocol.views import TaskState
from rota.protocol.wire import pack
from support.protocol import RUN, Fleet, one_tier

Q = one_tier("q")


def status(fleet: Fleet, task_id: str) -> TaskState:
    return fleet.run(fleet.store.status(task_id))


def end_of(fleet: Fleet, task_id: str) -> Ended:
    ended = status(fleet, task_id).ended
    assert ended is not None
    return ended


def keep(fleet: Fleet, number: int) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q"], Announced(number)))


def end_all(fleet: Fleet, *ids: str) -> None:
    """Enqueue tasks with these ids, and end all of them as done in a single turn."""
    fleet.push(*ids)
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=len(ids)).claims
    fleet.turn(owner, Q, *((claim, DONE) for claim in claims), limit=0)


@pytest.mark.parametrize(
    ("outcome", "how"), [(Done(), "done"), (Expired(), "expired"), (CancelledOutcome(), "cancelled")]
)
def test_an_end_is_stored_with_time_owner_and_run_record(fleet: Fleet, outcome: Outcome, how: str) -> None:
    owner, claim = fleet.claimed("a")
    before = fleet.now_us()
    fleet.turn(owner, Q, (claim, outcome))
    ended = end_of(fleet, "a")
    assert (status(fleet, "a").state, ended.how, ended.owner, ended.entry, ended.run) == (
        how, how, owner, claim.entry, RUN,
    )  # fmt: skip
    assert before <= ended.at_us <= fleet.now_us()


def test_an_end_without_a_run_record_is_not_stored(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, Done()), (second, Expired()), run=b"")
    assert [status(fleet, task_id).state for task_id in ("a", "b")] == ["unknown"] * 2
    assert not fleet.redis.exists(fleet.keys.ends)


def test_the_end_of_a_requeued_task_includes_earlier_attempts(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.exit(owner, ["a"])
    owner = fleet.register()
    (claim,) = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, Done()))
    assert (end_of(fleet, "a").entry.crashes, end_of(fleet, "a").earlier) == (1, (b'{"reason":"crash"}',))


def test_an_end_settled_by_reaping_has_the_dead_owner(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.reap(owner, [], (claim, Done()))
    assert (end_of(fleet, "a").owner, end_of(fleet, "a").run) == (owner, RUN)


@pytest.mark.parametrize("due", ["", "+60000000"])
def test_a_waiting_task_ends_when_it_is_cancelled(fleet: Fleet, due: str) -> None:
    fleet.push("a", due=due)
    fleet.run(fleet.store.cancel("a"))
    ended = end_of(fleet, "a")
    assert (status(fleet, "a").state, ended.how, ended.owner) == ("cancelled", "cancelled", "")
    assert (ended.entry.queue, ended.run) == ("q", RunRecord(name="work"))
    fleet.turn(fleet.register(), Q)  # this turn drops the entry from its lane, which must not count as a second end
    assert end_of(fleet, "a") == ended


@pytest.mark.parametrize("outcome", [RetryOutcome(0), DeadOutcome(b"{}"), Release()])
def test_a_running_task_that_was_cancelled_ends_with_its_attempt(fleet: Fleet, outcome: Outcome) -> None:
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    assert status(fleet, "a").state == "running"
    fleet.turn(owner, Q, (claim, outcome))
    assert (end_of(fleet, "a").how, end_of(fleet, "a").owner) == ("cancelled", owner)


def test_a_cancelled_task_ends_when_its_worker_dies(fleet: Fleet) -> None:
    owner, _ = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.exit(owner, ["a"])
    assert (end_of(fleet, "a").how, end_of(fleet, "a").entry.crashes) == ("cancelled", 1)


def test_a_cancelled_task_is_still_shown_as_cancelled_after_a_purge(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.run(fleet.store.cancel("a"))
    fleet.run(fleet.store.purge("q"))
    assert [end_of(fleet, task_id).how for task_id in ("a", "b")] == ["cancelled", "purged"]
    assert end_of(fleet, "b").run == RunRecord(name="work")


def known_among(fleet: Fleet, ids: Sequence[str]) -> list[str]:
    return [task_id for task_id in ids if status(fleet, task_id).state == "done"]


def sealed_texts(fleet: Fleet) -> int:
    """Return the number of closed texts in Redis. The records of ended tasks are appended to one text. When it is long
    enough, it is closed, and a new text begins.
    """
    return len(list(fleet.redis.scan_iter(fleet.keys.sealed_ends("*"))))


@pytest.mark.parametrize("at_once", [1, 7])
def test_slightly_more_than_the_configured_number_of_ends_is_kept(fleet: Fleet, at_once: int) -> None:
    keep(fleet, 20)
    ids = [f"t{number}" for number in range(70)]
    for first in range(0, len(ids), at_once):
        end_all(fleet, *ids[first : first + at_once])
    known = known_among(fleet, ids)
    assert known == ids[-len(known) :]
    assert 20 <= len(known) < 20 + 2 * 10 + at_once
    assert sealed_texts(fleet) == fleet.redis.llen(fleet.keys.ends_sealed) > 1


def test_zero_ends_to_keep_deletes_all_stored_ends(fleet: Fleet) -> None:
    keep(fleet, 2)
    end_all(fleet, "a", "b", "c")
    end_all(fleet, "d")
    keep(fleet, 0)
    end_all(fleet, "e")
    assert not list(fleet.redis.scan_iter(f"{fleet.keys.ends}*"))
    assert [status(fleet, task_id).state for task_id in "abcde"] == ["unknown"] * 5


def test_ten_thousand_ends_are_kept_without_a_setting(fleet: Fleet) -> None:
    end_all(fleet, "a")
    fleet.redis.hset(fleet.keys.meta, "ended", 10_000)
    fill_text(fleet)
    end_all(fleet, "b")  # now 10,001 tasks have ended; a text is kept if it has at least one of the last 10,000
    fill_text(fleet)
    fleet.redis.hset(fleet.keys.meta, "ended", 20_000)
    end_all(fleet, "c")
    fill_text(fleet)
    fleet.redis.hset(fleet.keys.meta, "ended", 20_001)
    end_all(fleet, "d")
    assert known_among(fleet, "abcd") == ["c", "d"]


def fill_text(fleet: Fleet) -> None:
    """Append a very long record to the text of ended tasks, so that the next record closes this text."""
    fleet.redis.append(fleet.keys.ends, f"\n!1 done 1 -\nother{' ' * 32_768}\n 0 0 0 -")


@pytest.mark.parametrize("text", ["nan", "1e300", "-1", "many"])
@pytest.mark.parametrize("field", ["ended_keep", "ended"])
def test_the_stored_ends_stay_bounded_if_their_counters_are_overwritten(fleet: Fleet, field: str, text: str) -> None:
    keep(fleet, 2)
    for number in range(12):
        fleet.redis.hset(fleet.keys.meta, field, text)
        end_all(fleet, f"t{number}")
    keep(fleet, 2)
    for number in range(12, 24):
        end_all(fleet, f"t{number}")
    assert sealed_texts(fleet) == fleet.redis.llen(fleet.keys.ends_sealed) <= 3
    assert known_among(fleet, ["t22", "t23"]) == ["t22", "t23"]


@pytest.mark.parametrize("number", ["9" * 15, "-5", "x", ""])
def test_foreign_items_in_the_list_of_stored_ends_are_removed(fleet: Fleet, number: str) -> None:
    keep(fleet, 2)
    end_all(fleet, "a")
    fleet.redis.lpush(fleet.keys.ends_sealed, number)
    fleet.redis.rpush(fleet.keys.ends_sealed, number)
    for task_id in "bcdef":
        end_all(fleet, task_id)
    assert number not in fleet.redis.lrange(fleet.keys.ends_sealed, 0, -1)
    assert known_among(fleet, "aef") == ["e", "f"]


@pytest.mark.parametrize("foreign", ["ends", "ends_sealed", "ends_untold", "meta"])
@pytest.mark.parametrize("is_list", [False, True])
def test_keys_of_another_type_do_not_prevent_ends(fleet: Fleet, foreign: str, is_list: bool) -> None:
    keep(fleet, 2)
    key = getattr(fleet.keys, foreign)
    fleet.redis.delete(key)
    if is_list:
        fleet.redis.rpush(key, "x")
    else:
        fleet.redis.set(key, "x" * 40_000)
    end_all(fleet, "a", "b")
    end_all(fleet, "c")
    owner, claim = fleet.claimed("d")
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["done"], audit.live, audit.missing) == (3, 1, 0)
    assert {status(fleet, task_id).state for task_id in "abc"} <= {"done", "unknown"}


def test_a_search_through_many_ends_continues_over_several_calls(fleet: Fleet) -> None:
    end_all(fleet, "a")
    for _ in range(100):
        fill_text(fleet)
        end_all(fleet, "b")
    assert status(fleet, "a").ended is None
    assert 0 < status(fleet, "a").ends_read < 100
    found = follow(fleet.run, find_task(fleet.store, "a"))
    assert (found.state, found.ends_read) == ("done", 0)
    assert status(fleet, "b").state == "done"
    assert follow(fleet.run, find_task(fleet.store, "c")).state == "unknown"


def test_one_call_finds_the_ends_of_many_tasks(fleet: Fleet) -> None:
    ids = [f"t{number}" for number in range(60)]
    end_all(fleet, *ids)
    asked = [*ids, "nobody", *(f"1{task_id}" for task_id in ids)]
    found = fleet.run(fleet.store.wait("client", [("e", task_id) for task_id in asked]))
    assert [task.state for task in found if task] == ["done"] * 60 + ["unknown"] * 61


def test_a_stale_outcome_stores_no_end(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    lost = fleet.register()
    reply = fleet.turn(lost, Q, (claim, DONE), limit=0)
    assert reply.stale == (claim.entry.text,)
    assert status(fleet, "a").state == "running"
    fleet.turn(owner, Q, (claim, DONE), limit=0)
    assert end_of(fleet, "a").run == RUN
    assert fleet.turn(owner, Q, (claim, DONE), limit=0).stale == (claim.entry.text,)
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_tasks_can_be_settled_in_any_order(fleet: Fleet) -> None:
    fleet.push(*"abcde")
    owner = fleet.register()
    first, second, third, fourth, fifth = fleet.turn(owner, Q, limit=5).claims
    fleet.turn(owner, Q, (third, DONE), (second, Expired()), (first, Done(b"1", 60_000)), limit=0)
    fleet.turn(owner, Q, (fourth, DONE), (fifth, Done(b"2", 60_000)), limit=0)
    assert [status(fleet, task_id).state for task_id in "abcde"] == ["done", "expired", "done", "done", "done"]
    assert [end_of(fleet, task_id).entry.id for task_id in "abcde"] == list("abcde")
    assert fleet.run(fleet.store.audit()).live == 0


@pytest.mark.parametrize("text", ["a q", "a q i", "!1 done", "", "a\n"])
def test_part_of_the_record_of_an_end_is_not_found_as_a_task_id(fleet: Fleet, text: str) -> None:
    end_all(fleet, "a")
    assert status(fleet, text).state == "unknown"


def test_an_id_enqueued_again_has_the_state_of_its_new_task(fleet: Fleet) -> None:
    end_all(fleet, "a")
    fleet.push("a")
    assert (status(fleet, "a").state, status(fleet, "a").ended) == ("ready", None)


def test_a_result_is_returned_with_and_without_the_stored_end(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done(b'{"a": [1, 2]}', 60_000)))
    assert (end_of(fleet, "a").how, status(fleet, "a").result) == ("done", b'{"a": [1, 2]}')
    assert 0 < fleet.redis.pttl(fleet.keys.result("a")) <= 60_000
    keep(fleet, 0)
    assert (status(fleet, "a").state, status(fleet, "a").ended, status(fleet, "a").result) == (
        "done", None, b'{"a": [1, 2]}',
    )  # fmt: skip


@pytest.mark.parametrize(
    "outcome", [Done(refused="too large"), Expired(), CancelledOutcome(), RetryOutcome(0), DeadOutcome(b"{}")]
)
def test_the_result_of_an_id_is_deleted_when_its_next_task_ends(fleet: Fleet, outcome: Outcome) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done(b"1", 60_000)), limit=0)
    fleet.push("a")
    (claim,) = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, outcome), limit=0)
    if isinstance(outcome, RetryOutcome):
        fleet.run(fleet.store.cancel("a"))
    assert not fleet.redis.exists(fleet.keys.result("a"))


def test_status_does_not_return_the_end_of_an_earlier_incarnation(fleet: Fleet) -> None:
    end_all(fleet, "a", "b")
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, Done()), (second, DeadOutcome(b"{}")), run=b"")
    fleet.run(fleet.store.purge_dead(["b"]))
    assert [status(fleet, task_id).state for task_id in ("a", "b")] == ["unknown"] * 2


def test_a_task_cancelled_between_attempts_keeps_its_attempt_records(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, RetryOutcome(0, b'{"reason":"failed"}')), limit=0)
    fleet.promote()
    fleet.run(fleet.store.cancel("a"))
    assert end_of(fleet, "a").earlier == (b'{"reason":"failed"}',)


def test_an_invalid_result_ttl_does_not_prevent_the_end(fleet: Fleet) -> None:
    """Code of a task can overwrite the slot of its worker, from which the master may read the TTL."""
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.reap_exited(owner, Blame(), pack((claim.entry.text, "done", "", b"0.5 1"))))
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["done"], audit.live, status(fleet, "a").result) == (1, 0, None)


@pytest.mark.parametrize("verb", ["done", "expired"])
@pytest.mark.parametrize("run", ["!1 cancelled 1 nobody", " 0 0 0 x\nb q i 1 1 0 0 0 0 -\n 0 0 0 x", "b q"])
def test_a_forged_run_record_cannot_change_the_ends_of_other_tasks(fleet: Fleet, verb: str, run: str) -> None:
    """Code of a task can overwrite the slot of its worker, from which the master may read the record. Text in such a
    record must not be read as the end of another task.
    """
    fleet.push("a", "c")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    settled = pack((first.entry.text, verb, run, "", second.entry.text, "done", " 1 2 3 work", ""))
    fleet.run(fleet.store.reap_exited(owner, Blame(), settled))
    assert [status(fleet, task_id).state for task_id in "abc"] == [verb, "unknown", "done"]
    assert (end_of(fleet, "a").run, end_of(fleet, "c").run) == (RunRecord(), RunRecord(1, 2, 3, "work"))


def test_status_of_a_dead_task_has_the_time_of_its_death(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    assert 0 <= fleet.now_us() - status(fleet, "a").ended_us < 60_000_000
    assert not fleet.redis.exists(fleet.keys.ends)


def test_a_full_server_still_stores_ends(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.redis.config_set("maxmemory", 1)
    try:
        fleet.turn(owner, Q, (claim, Done()))
    finally:
        fleet.redis.config_set("maxmemory", 0)
    assert end_of(fleet, "a").run == RUN
