"""Enqueues: which tasks the script accepts, and which tasks it refuses."""

import dataclasses

import pytest

from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.outcome import DeadOutcome, Done
from rota.protocol.wire import pack
from rota.server.server_errors import PushedBack, ServerError
from support.protocol import Fleet, body_of, one_tier

Q = one_tier("q")


def test_an_immediate_task_is_at_the_tail_of_the_ready_lane(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.push("b", "c")
    assert fleet.lane() == ["a", "b", "c"]


def test_a_delayed_task_is_stored_in_the_delayed_set_and_not_in_a_lane(fleet: Fleet) -> None:
    before = fleet.now_us()
    fleet.push("a", due="+60000000")
    assert fleet.lane() == []
    due = fleet.score(fleet.keys.delayed, "a") * 1e6
    assert before + 60e6 <= due <= fleet.now_us() + 60e6
    assert fleet.redis.hget(fleet.keys.tickets, "a") == "q d 0 0 0 0 -"


@pytest.mark.parametrize("due", ["+0", "@1000000", ""])
def test_a_due_time_in_the_past_means_at_once(fleet: Fleet, due: str) -> None:
    fleet.push("a", due=due)
    assert fleet.lane() == ["a"]


def test_a_repeated_enqueue_changes_nothing_even_if_its_task_has_ended(fleet: Fleet) -> None:
    call = fleet.store.enqueue("once", [NewTask("a", "q", body_of("a"))])
    first = fleet.run(call)
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.turn(owner, Q, (claim, Done()))
    before = fleet.snapshot()
    assert fleet.run(call) == first == [Enqueued()]
    assert fleet.snapshot() == before


def test_a_client_keeps_only_the_replies_of_its_last_enqueue_in_redis(fleet: Fleet) -> None:
    for number in (1, 2):
        fleet.run(fleet.store.enqueue(f"name {number}", [NewTask(f"t{number}", "q", body_of(f"t{number}"))]))
    assert fleet.redis.exists(fleet.keys.sent("name")) == 1
    before = fleet.snapshot()
    again = fleet.store.enqueue("name 2", [NewTask("t2", "q", body_of("t2"))])
    assert fleet.run(again) == [Enqueued()]
    assert fleet.snapshot() == before
    assert 0 < fleet.redis.pttl(fleet.keys.sent("name")) <= 60_000


def test_enqueueing_a_live_id_again_keeps_the_first_task(fleet: Fleet) -> None:
    fleet.push("a")
    assert fleet.enqueue(NewTask("a", "q", b"other")) == [Enqueued(duplicate=True)]
    assert fleet.redis.hget(fleet.keys.tasks, "a") == body_of("a").decode()
    assert fleet.lane() == ["a"]


def test_an_id_given_twice_in_one_call_is_accepted_once(fleet: Fleet) -> None:
    answers = fleet.enqueue(NewTask("a", "q", body_of("a")), NewTask("a", "q", body_of("a")))
    assert [answer.duplicate for answer in answers] == [False, True]


def test_a_unique_key_has_one_holder_until_that_task_ends(fleet: Fleet) -> None:
    assert fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k")) == [Enqueued()]
    assert fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k")) == [Enqueued(duplicate=True, holder="a")]
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    assert fleet.enqueue(NewTask("c", "q", body_of("c"), unique_key="k"))[0].holder == "a"
    fleet.turn(owner, Q, (claim, Done()))
    assert fleet.enqueue(NewTask("d", "q", body_of("d"), unique_key="k")) == [Enqueued()]


def test_a_dead_task_does_not_hold_its_unique_key(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    assert fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k")) == [Enqueued()]


def test_an_end_does_not_free_the_unique_key_of_another_task(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k", hold_ms=60_000))
    fleet.redis.delete(fleet.keys.unique("k"))  # simulates that the key has expired
    fleet.enqueue(NewTask("b", "q", body_of("b"), unique_key="k"))
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.turn(owner, Q, (claim, Done()), limit=0)
    assert fleet.redis.get(fleet.keys.unique("k")) == "b"


def test_a_unique_key_that_is_held_for_a_period_expires_after_it(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k", hold_ms=60_000))
    assert 0 < fleet.redis.pttl(fleet.keys.unique("k")) <= 60_000


def test_a_unique_key_without_a_live_holder_is_free(fleet: Fleet) -> None:
    fleet.redis.set(fleet.keys.unique("k"), "ghost")
    assert fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k")) == [Enqueued()]


@pytest.mark.parametrize(("task_id", "queue"), [("a b", "q"), ("", "q"), ("a", "q q"), ("a", "q-delayed")])
def test_an_enqueue_with_an_invalid_name_is_refused_as_a_whole(fleet: Fleet, task_id: str, queue: str) -> None:
    before = fleet.snapshot()
    with pytest.raises(ServerError, match="not a name"):
        fleet.enqueue(NewTask("good", "q", b"[]"), NewTask(task_id, queue, b"[]"))
    assert fleet.snapshot() == before


def test_a_call_without_tasks_returns_an_empty_list(fleet: Fleet) -> None:
    assert fleet.enqueue() == []


def test_ids_of_live_tasks_in_a_full_batch_are_returned_as_duplicates(fleet: Fleet) -> None:
    fleet.push("t7", "t499")
    answers = fleet.enqueue(*(NewTask(f"t{number}", "q", b"[]") for number in range(500)))
    assert [number for number, answer in enumerate(answers) if answer.duplicate] == [7, 499]
    assert len(fleet.lane()) == 500


def test_an_enqueue_of_more_than_one_batch_is_refused_as_a_whole(fleet: Fleet) -> None:
    before = fleet.snapshot()
    with pytest.raises(ServerError, match="at most 500"):
        fleet.enqueue(*(NewTask(f"t{number}", "q", b"[]") for number in range(501)))
    assert fleet.snapshot() == before


@pytest.mark.parametrize("arguments", [["a", "q", ""], ["a", "q", "", "", "0", "[]"], ["a", "q", "now", "[]"]])
def test_an_enqueue_with_invalid_arguments_is_refused_as_a_whole(fleet: Fleet, arguments: list[str]) -> None:
    before = fleet.snapshot()
    call = fleet.store.enqueue("nonce", [])
    with pytest.raises(ServerError):
        fleet.run(dataclasses.replace(call, args=pack(["nonce", *arguments])))
    assert fleet.snapshot() == before


def test_a_doorbell_holds_one_token_after_many_enqueues(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.push("b", "c")
    assert fleet.bell() == 1


def test_pollers_are_woken_only_for_a_new_earliest_due_time(fleet: Fleet) -> None:
    fleet.push("a", due="+50000000")
    assert fleet.redis.llen(fleet.keys.poller_doorbell) == 1
    fleet.redis.delete(fleet.keys.poller_doorbell)
    fleet.push("b", due="+60000000")
    assert fleet.redis.llen(fleet.keys.poller_doorbell) == 0
    fleet.push("c", due="+40000000")
    assert fleet.redis.llen(fleet.keys.poller_doorbell) == 1


def test_an_enqueue_that_meets_a_key_of_the_wrong_type_is_refused_as_a_whole(fleet: Fleet) -> None:
    fleet.redis.set(fleet.keys.ready_lane("bad"), "text")
    before = fleet.snapshot()
    with pytest.raises(ServerError):
        fleet.enqueue(NewTask("a", "q", body_of("a")), NewTask("b", "bad", body_of("b")))
    assert fleet.snapshot() == before


@pytest.mark.parametrize("name", ["tasks", "queues", "ready", "totals", "sent:once"])
def test_every_enqueue_is_refused_if_a_shared_key_has_the_wrong_type(fleet: Fleet, name: str) -> None:
    broken = fleet.keys.tasks.removesuffix("tasks") + name
    fleet.redis.zadd(broken, {"member": 1})
    before = fleet.snapshot()
    with pytest.raises(ServerError, match="WRONGTYPE"):
        fleet.run(fleet.store.enqueue("once", [NewTask("a", "q", body_of("a"))]))
    assert fleet.snapshot() == before


@pytest.mark.parametrize("name", ["tickets", "counts", "delayed", "keys"])
def test_a_key_of_the_wrong_type_affects_only_enqueues_that_need_it(fleet: Fleet, name: str) -> None:
    fleet.redis.set(fleet.keys.tasks.removesuffix("tasks") + name, "text")
    fleet.push("a")
    before = fleet.snapshot()
    needing = NewTask("b", "q", b"[]", unique_key="k") if name == "keys" else NewTask("b", "q", b"[]", due="+1000000")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        fleet.enqueue(NewTask("c", "other", body_of("c")), needing)
    assert fleet.snapshot() == before


def test_one_enqueue_may_mix_immediate_delayed_and_unique_tasks(fleet: Fleet) -> None:
    answers = fleet.enqueue(
        NewTask("a", "q", body_of("a")),
        NewTask("b", "r", body_of("b"), due="+60000000"),
        NewTask("c", "q", body_of("c"), unique_key="k"),
        NewTask("d", "q", body_of("d"), due="+50000000", unique_key="l", hold_ms=60_000),
        NewTask("e", "r", body_of("e"), unique_key="k"),
        NewTask("a", "r", body_of("a")),
        NewTask("f", "r", body_of("f")),
    )
    assert [(answer.duplicate, answer.holder) for answer in answers] == [
        *[(False, "")] * 4, (True, "c"), (True, ""), (False, "")
    ]  # fmt: skip
    assert (fleet.lane("q"), fleet.lane("r")) == (["a", "c"], ["f"])
    assert fleet.redis.zrange(fleet.keys.delayed, 0, -1) == ["d", "b"]
    assert fleet.redis.hgetall(fleet.keys.tickets) == {"b": "r d 0 0 0 0 -", "d": "q d 0 0 0 0 u"}
    assert fleet.redis.hgetall(fleet.keys.unique_keys) == {"c": "k", "d": "l"}
    assert fleet.redis.hgetall(fleet.keys.counts) == {"delayed:q": "1", "delayed:r": "1"}
    assert fleet.redis.hgetall(fleet.keys.totals) == {"accepted:q": "3", "accepted:r": "2"}
    assert fleet.redis.smembers(fleet.keys.queues) == fleet.redis.smembers(fleet.keys.ready) == {"q", "r"}
    assert sorted(fleet.redis.hkeys(fleet.keys.tasks)) == ["a", "b", "c", "d", "f"]


def test_a_server_without_memory_refuses_enqueues_but_workers_continue(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    fleet.redis.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(PushedBack):
            fleet.push("c")
        claim = fleet.turn(owner, Q).claims[0]
        assert fleet.turn(owner, Q, (claim, Done())).claims[0].entry.id == "b"
        assert fleet.run(fleet.store.renew(1000, [owner])).lost == ()
        assert fleet.promote().now_us > 0
        assert fleet.exit(owner, ["b"]).requeued[0].id == "b"
    finally:
        fleet.redis.config_set("maxmemory", "0")


def test_an_unserved_queue_is_reported_only_while_a_master_is_alive(fleet: Fleet) -> None:
    assert fleet.enqueue(NewTask("a", "lonely", body_of("a"))) == [Enqueued()]
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q"]))
    assert fleet.enqueue(NewTask("b", "lonely", body_of("b"))) == [Enqueued(unserved=True)]
    assert fleet.enqueue(NewTask("c", "q", body_of("c"))) == [Enqueued()]


def test_every_key_has_the_hash_tag_of_its_namespace(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    fleet.push("b", due="+1000000")
    owner = fleet.register()
    fleet.turn(owner, Q)
    keys = [key for key in fleet.redis.scan_iter(count=1000) if fleet.keys.namespace in key]
    assert len(keys) > 8
    assert {key.partition(":")[0] for key in keys} == {f"{{{fleet.keys.namespace}}}"}
