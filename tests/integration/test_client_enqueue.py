"""Enqueues on a real server: what they store in Redis, and what the client returns."""

import json
import os
import threading
import warnings
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.client.blocking.client import Client
from rota.protocol.store import Store
from support.protocol import Fleet
from support.servers import Server

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture(name="configured")
def _configured(server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.default_clients._default", type(rota.client.default_clients._default)())
    rota.configure(redis_url=server.url, namespace=namespace)


def body(fleet: Fleet, task_id: str) -> object:
    raw = fleet.redis.hget(fleet.keys.tasks, task_id)
    assert isinstance(raw, str)
    return json.loads(raw)


def due_in(fleet: Fleet, task_id: str) -> float:
    return fleet.score(fleet.keys.delayed, task_id) - fleet.now_us() / 1e6


def declare() -> rota.Task[[int], str]:
    @rota.task(name="resize", queue="images")
    def resize(image_id: int) -> str:
        return f"resized {image_id}"

    return resize


@pytest.mark.usefixtures("configured")
class TestDeclaredTasks:
    def test_enqueue_puts_the_task_in_its_lane(self, fleet: Fleet) -> None:
        handle = declare().enqueue(7)
        assert fleet.lane("images") == [handle.id]
        assert body(fleet, handle.id) == [handle.id, "images", "resize", [7]]
        assert not handle.duplicate

    def test_enqueue_in_accepts_seconds_or_a_timedelta(self, fleet: Fleet) -> None:
        resize = declare()
        assert 55 < due_in(fleet, resize.enqueue_in(60, 7).id) <= 60
        assert 3500 < due_in(fleet, resize.enqueue_in(timedelta(hours=1), 7).id) <= 3600

    def test_enqueue_at_keeps_the_exact_time_and_treats_a_past_time_as_now(self, fleet: Fleet) -> None:
        resize = declare()
        when = datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)
        assert fleet.score(fleet.keys.delayed, resize.enqueue_at(when, 7).id) == when.timestamp()
        past = resize.enqueue_at(datetime(2001, 1, 1, tzinfo=UTC), 8)
        assert fleet.lane("images") == [past.id]

    def test_using_sets_queue_id_and_delay_for_one_call(self, fleet: Fleet) -> None:
        resize = declare()
        handle = resize.using(queue="bulk", delay=60, id="img-7", retries=1).enqueue(7)
        assert handle.id == "img-7"
        assert body(fleet, "img-7") == ["img-7", "bulk", "resize", [7], {"options": {"retries": 1}}]
        assert due_in(fleet, "img-7") > 50

    def test_using_can_select_another_client(self, server: Server, namespace: str) -> None:
        with Client(server.url, f"{namespace}-other") as other:
            handle = declare().using(client=other).enqueue(7)
            assert handle.status().state == "ready"

    def test_enqueue_many_keeps_the_order_of_the_calls(self, fleet: Fleet) -> None:
        resize = declare()
        handles = rota.enqueue_many(resize.call(number) for number in range(1203))
        lane = fleet.lane("images")
        assert lane == [handle.id for handle in handles]
        assert body(fleet, lane[1202]) == [lane[1202], "images", "resize", [1202]]

    def test_no_task_is_sent_if_one_call_is_invalid(self, fleet: Fleet) -> None:
        resize = declare()
        with pytest.raises(rota.InvalidArguments):
            rota.enqueue_many([resize.call(1), rota.Call("resize", args=["a", "b"])])
        assert fleet.lane("images") == []

    def test_status_and_cancel_by_id_use_the_default_client(self, fleet: Fleet) -> None:
        handle = declare().using(queue="default").enqueue(1)
        assert rota.default_client() is handle.client
        assert rota.status(handle.id, args=True).args == [1]
        assert rota.cancel(handle.id) == "cancelled"
        assert rota.status(handle.id).state == "cancelled"
        assert fleet.redis.hget(fleet.keys.tasks, handle.id) in (None, "")

    def test_enqueueing_no_calls_returns_no_handles(self) -> None:
        assert rota.enqueue_many([]) == []

    def test_an_async_task_is_enqueued_like_any_other(self, fleet: Fleet) -> None:
        @rota.task(name="fetch")
        async def fetch(url: str) -> int:
            return len(url)

        handle = fetch.enqueue("https://example.org")
        assert fleet.lane("default") == [handle.id]

    def test_a_duplicate_handle_has_the_id_of_the_unique_task(self, fleet: Fleet) -> None:
        @rota.task(name="refresh", unique=True)
        def refresh(user_id: int) -> None: ...

        first, second, third = refresh.enqueue(1), refresh.enqueue(1), refresh.enqueue(2)
        assert (second.id, second.duplicate) == (first.id, True)
        assert not third.duplicate
        assert fleet.lane("default") == [first.id, third.id]

    def test_a_unique_for_key_is_free_again_after_its_time(self, fleet: Fleet) -> None:
        @rota.task(name="refresh", unique=True, unique_for=100)
        def refresh(user_id: int) -> None: ...

        refresh.enqueue(1)
        [key] = fleet.redis.scan_iter(match=fleet.keys.unique("*"))
        assert 90_000 < fleet.redis.pttl(key) <= 100_000
        fleet.redis.delete(key)
        assert not refresh.enqueue(1).duplicate


class TestByName:
    def test_execute_later_returns_the_id(self, client: Client, fleet: Fleet) -> None:
        task_id = client.execute_later("sold-email", "send_sold_email", [17, 42, 900, 3])
        assert isinstance(task_id, str)
        assert fleet.lane("sold-email") == [task_id]
        assert body(fleet, task_id) == [task_id, "sold-email", "send_sold_email", [17, 42, 900, 3]]

    def test_execute_later_with_a_delay_schedules_the_task(self, client: Client, fleet: Fleet) -> None:
        task_id = client.execute_later("sold-email", "send_sold_email", [17], delay=60)
        assert 55 < due_in(fleet, task_id) <= 60
        assert fleet.lane("sold-email") == []

    def test_arguments_and_options_are_given_by_keyword(self, client: Client, fleet: Fleet) -> None:
        handle = client.enqueue("resize", args=[7], kwargs={"size": "l"}, queue="images", id="r-7")
        assert body(fleet, handle.id) == ["r-7", "images", "resize", [7], {"kwargs": {"size": "l"}}]
        by_call = client.enqueue(rota.Call("resize", args=[8], queue="images"))
        assert fleet.lane("images") == ["r-7", by_call.id]

    def test_enqueueing_a_live_id_returns_a_duplicate_handle(self, client: Client, fleet: Fleet) -> None:
        first = client.enqueue("resize", args=[1], queue="images", id="r-1")
        second = client.enqueue("resize", args=[2], queue="images", id="r-1")
        assert (first.duplicate, second.duplicate, second.id) == (False, True, "r-1")
        assert body(fleet, "r-1") == ["r-1", "images", "resize", [1]]

    def test_options_beside_a_call_object_are_refused(self, client: Client) -> None:
        with pytest.raises(TypeError, match="pass them where the Call is created"):
            client.enqueue(rota.Call("resize", queue="images"), delay=5)  # type: ignore[call-overload]  # the claim

    def test_refused_calls_send_nothing(self, client: Client, fleet: Fleet) -> None:
        for error, name, options in (
            (rota.InvalidName, "resize", {"queue": "a b"}),
            (rota.InvalidName, "re{size}", {"queue": "images"}),
            (rota.InvalidName, "resize", {}),
            (rota.InvalidArguments, "resize", {"queue": "images", "args": [object()]}),
            (rota.PayloadTooLarge, "resize", {"queue": "images", "args": ["x" * 300_000]}),
        ):
            with pytest.raises(error):
                client.enqueue(name, **options)
        assert list(fleet.redis.scan_iter(match=f"{{{fleet.keys.namespace}}}*")) == [fleet.keys.meta]


def test_threads_share_a_client(client: Client, fleet: Fleet) -> None:
    def produce() -> None:
        for number in range(25):
            client.enqueue("work", args=[number], queue="q")

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(fleet.lane())) == 200


def test_a_forked_child_has_its_own_connections(client: Client, fleet: Fleet) -> None:
    client.enqueue("work", queue="q", id="before")
    child = os.fork()
    if not child:
        code = 1
        try:
            for number in range(50):
                client.enqueue("work", queue="q", id=f"child-{number}")
            code = 0
        finally:
            os._exit(code)
    for number in range(50):
        client.enqueue("work", queue="q", id=f"parent-{number}")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(fleet.lane()) == 101


def test_an_unserved_queue_warns_once_at_the_line_of_the_caller(client: Client, fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["served"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.enqueue("work", queue="served")
        client.enqueue("work", queue="nobody")
        client.execute_later("nobody", "work", [])
    [warning] = caught
    assert issubclass(warning.category, rota.UnservedQueue)
    assert issubclass(warning.category, rota.RotaWarning)
    assert "no running fleet serves queue 'nobody'" in str(warning.message)
    assert warning.filename == __file__
    assert len(fleet.lane("nobody")) == 2


def test_a_namespace_without_any_fleet_warns_once(server: Server, fleet: Fleet, namespace: str) -> None:
    """The client does not warn if a fleet exists but is not running at the moment, for example because it was
    stopped.
    """
    with Client(server.url, f"{namespace}-typo") as typo, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        typo.enqueue("work", queue="q")
        typo.enqueue_many([rota.Call("work", queue="p"), rota.Call("work", queue="q")])
        fleet.run(Store(f"{namespace}-typo").open())
        typo.enqueue("work", queue="other")
    [warning] = caught
    assert issubclass(warning.category, rota.UnseenNamespace)
    assert f"no fleet has ever run in namespace '{namespace}-typo' on {typo._driver.endpoint.place}" in str(
        warning.message
    )
    assert warning.filename == __file__


def test_tasks_of_a_consumer_without_a_fleet_cause_no_warning(server: Server, namespace: str) -> None:
    with Client(server.url, namespace) as made, warnings.catch_warnings():
        warnings.simplefilter("error")
        with made.consumer("q"):
            made.enqueue("work", queue="q")


def test_calls_enqueued_together_at_the_front_keep_their_order(client: Client, fleet: Fleet) -> None:
    """The order is kept even if there are more tasks than one script call can accept."""
    client.enqueue("work", queue="q", id="waits")
    calls = [rota.Call("work", queue="q", id=f"{number}", front=bool(number % 3)) for number in range(400)]
    handles = client.enqueue_many(calls)
    assert [handle.id for handle in handles] == [str(number) for number in range(400)]
    fronts = [str(number) for number in range(400) if number % 3]
    assert fleet.lane() == [*fronts, "waits", *(str(number) for number in range(0, 400, 3))]


def test_front_must_be_true_or_false(client: Client) -> None:
    with pytest.raises(TypeError, match="front must be True or False, got 1"):
        client.enqueue("work", queue="q", front=1)  # type: ignore[call-overload]  # on purpose
