"""Consumers on a real server. The protocol driver makes the calls of the pollers and masters."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

import rota
from rota.client.blocking.client import Client
from rota.contrib.opentelemetry import processing
from rota.protocol.nodes import Announced
from rota.protocol.store import Blame, Store
from rota.protocol.tiers import QueueShare
from support.faulty_link import FaultyLink
from support.protocol import Fleet, one_tier
from support.servers import Server
from support.spans import recorded_spans
from support.waiting import until

pytestmark = [pytest.mark.filterwarnings("ignore::rota.UnservedQueue"), pytest.mark.usefixtures("own_registry")]


@pytest.fixture(name="consumer")
def _consumer(client: Client) -> Iterator[rota.Consumer]:
    with client.consumer("q", limit=8) as made:
        yield made


def push(client: Client, *ids: str, **options: float) -> None:
    for task_id in ids:
        client.enqueue(rota.Call("work", [1], {"b": [2]}, queue="q", id=task_id, **options))  # type: ignore[arg-type]


def lose_lease(fleet: Fleet, owner: str) -> None:
    """Let the lease of this consumer expire, and let a poller reap it."""
    fleet.expire_lease(owner)
    blame = Blame(loss_record=b'{"reason":"lost","error":"its lease ran out"}')
    assert not fleet.run(fleet.store.reap_expired(owner, blame)).alive


# The tasks that a consumer receives, and how it settles them


def test_a_leased_task_has_its_id_arguments_queue_and_attempt(client: Client, consumer: rota.Consumer) -> None:
    push(client, "a")
    task = next(consumer)
    assert (task.id, task.name, task.queue, task.kind, task.attempt) == ("a", "work", "q", "immediate", 1)
    assert (task.args, dict(task.kwargs)) == ((1,), {"b": [2]})
    assert task.lag_seconds >= 0
    found = client.status("a")
    assert (found.state, found.owner, found.due_at) == ("running", consumer.owner, task.due_at)


def test_the_trace_context_of_a_task_reaches_the_consumer_and_its_span(
    client: Client, consumer: rota.Consumer, fleet: Fleet
) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    body = f'["a","q","work",[1],{{"traceparent":"00-{trace_id}-{span_id}-01","odd":7}}]'
    fleet.redis.rpush(fleet.keys.ready_lane("q"), body)
    task = next(consumer)
    with recorded_spans() as spans, task, processing(task):
        assert dict(task.carried) == {"traceparent": f"00-{trace_id}-{span_id}-01"}
    [span] = spans.get_finished_spans()
    [link] = span.links
    assert (span.name, f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (
        "process q",
        trace_id,
        span_id,
    )
    assert client.status("a").state == "done"


def test_a_task_is_retried_if_its_with_block_raises_and_is_done_otherwise(
    client: Client, consumer: rota.Consumer, fleet: Fleet
) -> None:
    push(client, "good", "bad")
    for task in consumer:
        with task:
            if task.id == "bad":
                consumer.stop()
                raise ValueError("so it goes")
    assert fleet.run(fleet.store.audit()).ended["done"] == 1
    found = client.status("bad")
    assert (found.state, found.failures, found.attempt) == ("scheduled", 1, 2)


def test_each_method_of_a_leased_task_reports_its_own_outcome(client: Client, consumer: rota.Consumer) -> None:
    push(client, "done", "retry", "dead", "release")
    tasks = {task.id: task for task in (next(consumer) for _ in range(4))}
    tasks["done"].done()
    with pytest.raises(TypeError, match="delay must be seconds or a timedelta, got '60'"):
        tasks["retry"].retry(delay="60")  # type: ignore[arg-type]  # what a caller without types may do
    tasks["retry"].retry(delay=60)
    tasks["dead"].dead("no such image")
    tasks["release"].release()
    found = {name: client.status(name) for name in tasks}
    assert {name: status.state.value for name, status in found.items()} == {
        "done": "done",
        "retry": "scheduled",
        "dead": "dead",
        "release": "ready",
    }
    death = found["dead"].death
    assert death is not None
    assert (death["reason"], death["error"]) == ("asked", "no such image")
    assert found["release"].failures == 0
    for verb in ("done", "dead"):
        assert consumer.owner.startswith(found[verb].node)
        assert found[verb].pid == os.getpid()


def test_a_result_is_stored_if_the_task_has_a_result_ttl(client: Client, consumer: rota.Consumer) -> None:
    push(client, "kept", "refused", result_ttl=60)
    push(client, "dropped")
    for task in (next(consumer), next(consumer), next(consumer)):
        task.done(object() if task.id == "refused" else {"n": 1})
    found = {task_id: client.status(task_id) for task_id in ("kept", "refused", "dropped")}
    assert {name: status.has_result for name, status in found.items()} == {
        "kept": True,
        "refused": False,
        "dropped": False,
    }
    assert "is of type object" in found["refused"].result_refused


def test_type_annotations_convert_arguments_and_results_in_a_consumer(client: Client, consumer: rota.Consumer) -> None:
    def remind(at: datetime, ids: set[int]) -> tuple[datetime, ...]: ...  # type: ignore[empty-body]

    client.enqueue("remind", args=["soon", []], queue="q", id="wrong")
    at = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
    handle = rota.task(queue="q", name="remind", result_ttl=60)(remind).using(client=client).enqueue(at, ids={1})
    task = next(consumer)
    assert (task.args, dict(task.kwargs)) == ((at, {1}), {})
    task.done((at,))
    assert handle.result() == (at,)
    assert "at is refused: invalid RFC3339 encoded datetime" in (client.status("wrong").death or {})["error"]


def test_a_consumer_applies_retry_options_of_the_declaration_and_the_call(
    client: Client, consumer: rota.Consumer
) -> None:
    @rota.task(name="work", retries=3, dead_on=KeyError)
    def work(a: int, b: list[int]) -> None: ...

    push(client, "declared")
    client.enqueue(work.using(queue="q", id="enqueued", retries=0).call(1, b=[2]))
    for task in (next(consumer), next(consumer)):
        with task:
            raise KeyError if task.id == "declared" else ValueError
    deaths = [client.status(task_id).death or {} for task_id in ("declared", "enqueued")]
    assert [death["reason"] for death in deaths] == ["dead_on", "retries"]
    assert "traceback" in deaths[0]


def test_a_task_settled_in_its_block_is_not_settled_again(client: Client, consumer: rota.Consumer) -> None:
    push(client, "a")
    with next(consumer) as task:
        task.dead("enough")
    assert client.status("a").state == "dead"
    with pytest.raises(RuntimeError, match="task a was already settled"):
        task.done()


def test_an_interrupt_releases_the_task_and_propagates(client: Client, consumer: rota.Consumer) -> None:
    push(client, "a")
    with pytest.raises(KeyboardInterrupt), next(consumer):
        raise KeyboardInterrupt
    found = client.status("a")
    assert (found.state, found.failures) == ("ready", 0)


def test_a_consumer_skips_expired_and_invalid_tasks(client: Client, consumer: rota.Consumer, fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["garbage","q",17]')
    push(client, "late", expires=0.001)
    time.sleep(0.002)  # the task expires in this time
    push(client, "good")
    assert next(consumer).id == "good"
    until(lambda: fleet.run(fleet.store.audit()).ended["expired"] == 1)
    [dead] = fleet.run(fleet.store.dead_page(0, 10)).tasks
    assert b'"reason":"garbage"' in dead.death_record


def test_a_consumer_sees_that_its_task_was_cancelled_and_can_end_it(client: Client, fleet: Fleet) -> None:
    with client.consumer("q", lease_seconds=1) as consumer:
        push(client, "a")
        with next(consumer) as task:
            assert not task.cancelled
            client.cancel("a")
            until(lambda: task.cancelled)
            raise rota.Cancelled
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1


def test_a_cancellation_reaches_a_consumer_before_the_next_lease_renewal(client: Client, fleet: Fleet) -> None:
    with client.consumer("q", limit=2, lease_seconds=3600) as consumer:
        push(client, "a", "b")
        tasks = [next(consumer), next(consumer)]
        for task in tasks:
            client.cancel(task.id)
            until(lambda task=task: task.cancelled)  # type: ignore[misc]  # mypy infers no lambda with a default
        assert not fleet.redis.exists(fleet.keys.orders(consumer.owner.rpartition(":")[0].rpartition(":")[0]))


def test_a_cancellation_does_not_affect_the_next_task_of_that_id(client: Client, fleet: Fleet) -> None:
    with client.consumer("q", lease_seconds=3600) as consumer:
        push(client, "a")
        with next(consumer) as task:
            client.cancel("a")
            until(lambda: task.cancelled)
            raise rota.Cancelled
        push(client, "a")
        with next(consumer) as following:
            assert (task.cancelled, following.cancelled) == (True, False)
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["cancelled"], audit.ended["done"]) == (1, 1)


# The number of tasks that a consumer takes, and their queues


def test_a_consumer_at_its_limit_claims_again_after_it_settles_a_task(client: Client, fleet: Fleet) -> None:
    push(client, "a", "b", "c")
    with client.consumer("q", limit=2) as consumer, ThreadPoolExecutor(1) as pool:
        held = [next(consumer), next(consumer)]
        third = pool.submit(next, consumer)
        assert not third.done()
        assert fleet.inflight(consumer.owner) == ["a", "b"]
        held[0].done()
        assert third.result(30).id == "c"


def test_a_sleeping_consumer_is_woken_and_wakes_the_next_one(client: Client) -> None:
    with ThreadPoolExecutor(4) as pool, client.consumer("q") as one, client.consumer("q") as two:
        for number in range(20):
            waiting = [pool.submit(next, consumer) for consumer in (one, two)]
            client.enqueue_many(rota.Call("work", queue="q", id=f"{number}-{n}") for n in range(2))
            # The timeout is shorter than the time after which a consumer checks its queue without a token in its
            # doorbell.
            tasks = [each.result(3) for each in waiting]
            assert {task.id for task in tasks} == {f"{number}-0", f"{number}-1"}
            list(pool.map(rota.LeasedTask.done, tasks))


def test_consumers_apply_the_published_cap_and_rate(client: Client, fleet: Fleet) -> None:
    shares = [QueueShare("q", cap=1), QueueShare("r", interval_us=200_000)]
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q", "r"], Announced(shares=tuple(shares))))
    push(client, "a", "b")
    with client.consumer("q", limit=2) as one, client.consumer("q") as two, ThreadPoolExecutor(1) as pool:
        first = next(one)
        second = pool.submit(next, two)
        fleet.push("x", "y", queue="r")
        with client.consumer("r") as paced:  # meanwhile, the other consumer checks its queue
            began = time.monotonic()
            next(paced).done()
            next(paced).done()
            assert time.monotonic() - began > 0.15
        assert fleet.inflight(two.owner) == []
        first.done()
        assert second.result(30).id == "b"


def test_a_consumer_applies_a_declared_rate_without_delaying_other_tasks(
    client: Client, consumer: rota.Consumer
) -> None:
    """The consumer releases a task that has to wait for its rate, instead of holding the task."""

    @rota.task(name="work", rate="1/h", rate_key="{number}")
    def work(number: int, b: list[int]) -> None: ...

    push(client, "a", "waits")
    push(client, "expires", expires=60)
    client.enqueue(rota.Call("work", [2], {"b": []}, queue="q", id="another-number"))
    assert [next(consumer).id for _ in range(2)] == ["a", "another-number"]
    waits = client.status("waits")
    assert (waits.state, waits.kind, waits.attempt) == ("scheduled", "throttled", 1)
    client.enqueue(rota.Call("plain", queue="q", id="plain"))
    assert next(consumer).id == "plain"
    assert client.status("expires").state == "expired"


def test_queues_share_a_consumer_by_the_published_weights(client: Client, fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q", "r"], Announced(shares=(QueueShare("q", weight=3.0),))))
    for queue in ("q", "r"):
        fleet.push(*(f"{queue}{number}" for number in range(20)), queue=queue)
    taken = []
    with client.consumer("q", "r") as consumer:
        for _ in range(20):
            with next(consumer) as task:
                taken.append(task.queue)
    assert taken.count("q") == 15


def test_a_consumer_claims_a_task_that_crashed_only_if_it_holds_no_other(
    link: FaultyLink, namespace: str, fleet: Fleet
) -> None:
    fleet.push("guilty")
    owner = fleet.register()
    fleet.turn(owner, one_tier("q"))
    with (
        Client(link.url, namespace) as client,
        client.consumer("q", limit=4) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        push(client, "innocent")
        held = next(consumer)
        fleet.exit(owner, ["guilty"])  # the task `guilty` is now at the head, and its token is in the doorbell
        waiting = pool.submit(next, consumer)
        until(lambda: link.calls["turn"] >= 2)
        before = link.calls["turn"]
        threading.Event().wait(1)  # the next line checks how many calls are made in one second
        assert link.calls["turn"] - before < 5
        assert not waiting.done()
        held.done()
        assert waiting.result(30).id == "guilty"


# The end


def test_a_stopped_consumer_can_still_settle_the_tasks_it_holds(client: Client, fleet: Fleet) -> None:
    push(client, "a")
    with client.consumer("q", limit=2) as consumer, ThreadPoolExecutor(2) as pool:
        task = next(consumer)
        ends = [pool.submit(list, consumer) for _ in range(2)]
        consumer.stop()
        assert [end.result(30) for end in ends] == [[], []]
        task.done()
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_a_signal_handler_can_stop_a_consumer(consumer: rota.Consumer) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        assert list(consumer) == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_closing_a_consumer_returns_its_tasks_in_order(client: Client, fleet: Fleet) -> None:
    push(client, "a", "b", "c")
    with client.consumer("q", limit=2) as consumer:
        tasks = [next(consumer), next(consumer)]
    assert fleet.lane() == ["a", "b", "c"]
    assert client.status("a").attempt == 1
    assert fleet.redis.zcard(fleet.keys.owners) == 0
    assert fleet.run(fleet.store.consumers()).total == 0
    before = fleet.snapshot()
    for task in tasks:
        with pytest.raises(rota.LeaseLost, match="because it was closed"):
            task.done()
    assert fleet.snapshot() == before
    assert list(consumer) == []


def _refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except RuntimeError as error:
        return str(error)
    return ""


# Newer versions of Python warn about a fork in a process with threads.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_cannot_use_the_consumer_of_its_parent(
    client: Client, consumer: rota.Consumer, fleet: Fleet
) -> None:
    push(client, "a")
    task = next(consumer)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            words = [_refusal(lambda: next(consumer)), _refusal(task.done)]
            consumer.close()
            code = 0 if all(f"belongs to process {os.getppid()}" in said for said in words) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert fleet.inflight(consumer.owner) == ["a"]
    task.done()


# Leases


def test_a_late_settle_after_lease_loss_is_refused_and_changes_nothing(
    client: Client, consumer: rota.Consumer, fleet: Fleet
) -> None:
    push(client, "a", "b")
    held = [next(consumer), next(consumer)]
    lose_lease(fleet, consumer.owner)
    before = fleet.snapshot()
    for task in held:
        with pytest.raises(rota.LeaseLost, match="its lease expired"), task:
            pass
    assert fleet.snapshot() == before
    again = next(consumer)  # the consumer has registered again, under another name
    assert (again.id, again.losses, again.attempt) == ("a", 1, 2)
    again.done()
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_the_lease_is_renewed_while_a_task_takes_long(client: Client, fleet: Fleet) -> None:
    push(client, "a")
    with client.consumer("q", lease_seconds=1) as consumer:
        task = next(consumer)
        since = fleet.score(fleet.keys.owners, consumer.owner)
        until(lambda: fleet.score(fleet.keys.owners, consumer.owner) > since + 400_000)
        task.done()


def test_a_consumer_continues_under_a_new_owner_after_lease_loss(client: Client, fleet: Fleet) -> None:
    with client.consumer("q", lease_seconds=1) as consumer, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, consumer)
        first = consumer.owner
        lose_lease(fleet, first)
        until(lambda: consumer.owner != first)
        push(client, "a")
        waiting.result(30).done()


def test_renewals_continue_after_an_unexpected_error(
    client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [KeyError("of ours")]

    def attend(store: Store, *given: Any) -> Any:
        return real(store, *given) if not faults else (_ for _ in ()).throw(faults.pop())

    with client.consumer("q", lease_seconds=1) as consumer:
        real = Store.attend
        monkeypatch.setattr(Store, "attend", attend)
        until(lambda: not faults)
        since = fleet.score(fleet.keys.owners, consumer.owner)
        until(lambda: fleet.score(fleet.keys.owners, consumer.owner) > since)


def test_a_consumer_can_reclaim_a_lost_task_before_it_settles_the_old_claim(
    link: FaultyLink, namespace: str, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(link.url, namespace, timeout_seconds=0.5) as client,
        client.consumer("q", limit=3, lease_seconds=1) as consumer,
    ):
        push(client, "a")
        before = next(consumer)
        lose_lease(fleet, consumer.owner)
        until(lambda: "has lost its lease" in caplog.text)
        link.lose_replies(1, of="turn")
        with ThreadPoolExecutor(1) as pool:
            try:
                after = pool.submit(next, consumer).result(30)
            finally:
                consumer.stop()
        assert link.lost["turn"] == 1
        assert (after.id, after.losses) == ("a", 1)
        with pytest.raises(rota.LeaseLost):
            before.done()


def test_an_at_most_once_task_is_dead_after_lease_loss(client: Client, consumer: rota.Consumer, fleet: Fleet) -> None:
    rota.task(name="work", crash_limit=0)(lambda *_, **__: None)
    push(client, "lost", "given-back", "done")
    tasks = {task.id: task for task in (next(consumer) for _ in range(3))}
    assert all(task.at_most_once for task in tasks.values())
    tasks["done"].done()
    tasks["given-back"].release()
    lose_lease(fleet, consumer.owner)
    with pytest.raises(rota.LeaseLost):
        tasks["lost"].done()
    found = {task_id: client.status(task_id) for task_id in tasks}
    assert {name: status.state.value for name, status in found.items()} == {
        "done": "done",
        "given-back": "ready",
        "lost": "dead",
    }
    assert (found["lost"].death or {})["reason"] == "at_most_once"


# The server is unreachable


def test_lost_replies_do_not_make_a_consumer_claim_or_settle_twice(
    link: FaultyLink, namespace: str, fleet: Fleet
) -> None:
    with Client(link.url, namespace, timeout_seconds=0.5) as client, client.consumer("q", limit=3) as consumer:
        push(client, "a", "b")
        link.lose_replies(1, of="turn")
        first, second = next(consumer), next(consumer)
        assert (first.id, second.id) == ("a", "b")
        link.lose_replies(1, of="turn", cut=False)
        first.done()
        link.lose_replies(1, of="turn")
        second.dead("why")
        assert link.lost["turn"] == 3
        assert fleet.inflight(consumer.owner) == []
        assert fleet.run(fleet.store.audit()).ended["done"] == 1
        assert client.status("b").state == "dead"


def test_a_consumer_claims_and_settles_again_after_an_outage(link: FaultyLink, namespace: str) -> None:
    with (
        Client(link.url, namespace, timeout_seconds=0.5) as client,
        client.consumer("q", limit=2) as consumer,
        ThreadPoolExecutor(2) as pool,
    ):
        push(client, "a")
        task = next(consumer)
        waiting = pool.submit(next, consumer)
        link.refuse()
        link.cut()
        settling = pool.submit(task.done)
        until(lambda: len(link.attempts) > 6)
        assert not settling.done()
        link.refuse(False)
        settling.result(30)
        push(client, "b")
        waiting.result(30).done()


@pytest.mark.parametrize("forbidden", ["-blpop", "-evalsha"])
def test_a_consumer_without_permission_raises_instead_of_retrying_forever(
    server: Server, namespace: str, fleet: Fleet, forbidden: str
) -> None:
    user: dict[str, Any] = {"enabled": True, "passwords": ["+pw"], "keys": ["*"], "reset": True}
    fleet.redis.acl_setuser("half", commands=["+@all"], **user)
    url = server.url.replace("redis://", "redis://half:pw@")
    with Client(url, namespace) as client, client.consumer("q", limit=2) as consumer:
        push(client, "a")
        task = next(consumer)
        fleet.redis.acl_setuser("half", commands=["+@all", forbidden], **user)
        with pytest.raises(rota.Unavailable, match=r"(?i)permission"):
            next(consumer)
        if forbidden == "-evalsha":
            with pytest.raises(rota.Unavailable, match=r"(?i)permission"):
                task.done()
        fleet.redis.acl_setuser("half", commands=["+@all"], **user)
        task.done()
    fleet.redis.acl_deluser("half")


def test_opening_a_consumer_raises_at_once_if_there_is_no_server(namespace: str) -> None:
    with Client("redis://127.0.0.1:1/0", namespace) as client, pytest.raises(rota.Unavailable):
        client.consumer("q")


def test_invalid_arguments_of_a_consumer_are_refused(client: Client) -> None:
    with pytest.raises(rota.InvalidName):
        client.consumer("not a name")
    for limit in (0, 501):
        with pytest.raises(ValueError, match="limit must be from 1 to 500"):
            client.consumer("q", limit=limit)
    with pytest.raises(ValueError, match="lease_seconds must be at least 1"):
        client.consumer("q", lease_seconds=0.5)
