"""AsyncClient on a real server: results, concurrent calls, and cancelled awaits."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import redis

import rota
from rota.client import default_clients
from rota.client.aio.pool import AioPool
from rota.client.command_replies import Exchange, NotReplied
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH, Store
from rota.protocol.views import TaskState
from rota.server.address import NO_ACCESS
from rota.server.endpoint import UrlEndpoint
from support.faulty_link import FaultyLink
from support.protocol import Fleet
from support.servers import Server
from support.waiting import until

TIMEOUT_SECONDS = 0.8
IN_TIME_SECONDS = 1.5  # less than twice the timeout

work = rota.Call("work", queue="q")


def call(task_id: str) -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


@asynccontextmanager
async def warm(url: str, namespace: str) -> AsyncIterator[rota.AsyncClient]:
    """Yield a client that is connected to a server. The server has already loaded the script for enqueues."""
    async with rota.AsyncClient(url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client:
        await client.enqueue("warm", queue="warm")
        yield client


def test_the_asyncio_client_behaves_like_the_blocking_client(server: Server, namespace: str, fleet: Fleet) -> None:
    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace) as client:
            handle = await client.enqueue(call("a"))
            assert (handle.id, handle.duplicate, (await handle.status()).state) == ("a", False, "ready")
            assert (await client.enqueue(call("a"))).duplicate
            fronts = [rota.Call("work", queue="q", id=f"f{number}", front=True) for number in range(2)]
            assert [each.id for each in await client.enqueue_many([*fronts, call("b")])] == ["f0", "f1", "b"]
            assert [each.id for each in await client.peek("q")] == ["f0", "f1", "a", "b"]
            assert (await client.explain(1, queue="q")).queue == "q"
            assert [await client.pause("q"), await client.pause("q"), await client.resume("q")] == [True, False, True]
            assert await handle.cancel() == "cancelled"
            assert (await handle.wait(5)).state == "cancelled"
            with pytest.raises(rota.TaskCancelled):
                await handle.result(5)
            assert [await client.revive("b"), await client.purge_dead("b")] == [False, False]
            assert [(each.queue, each.accepted) for each in await client.queues()] == [("q", 4)]
            await client.schedules.put("often", "work", rota.Every(60, queue="q"))
            assert [each.name for each in await client.schedules.list()] == ["often"]
            with pytest.raises(rota.EventsOff):
                await anext(client.events())

    asyncio.run(program())
    assert fleet.lane() == ["f0", "f1", "a", "b"]  # a cancelled task stays in its lane until a claim drops it


def test_concurrent_calls_share_one_connection_and_waits_share_another(
    server: Server, namespace: str, redis_client: "redis.Redis"
) -> None:
    def connections() -> int:
        return len([each for each in redis_client.client_list() if each["name"] in ("rota:client", "rota:waiting")])

    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace) as client:
            handles = await asyncio.gather(*[client.enqueue(work) for _ in range(BATCH)])
            assert len({handle.id for handle in handles}) == BATCH
            assert connections() == 1
            waiting = [asyncio.create_task(handle.wait(20)) for handle in handles[:50]]
            with pytest.raises(rota.WaitTimeout):
                await handles[-1].wait(0.05)
            async with asyncio.timeout(30):
                while connections() == 1:
                    await asyncio.sleep(0.01)
            assert connections() == 2
            await asyncio.gather(*[handle.cancel() for handle in handles[:50]])
            assert {status.state for status in await asyncio.gather(*waiting)} == {"cancelled"}

    asyncio.run(program())
    until(lambda: connections() == 0, "the connections to be closed")


def test_an_enqueue_cancelled_after_it_was_sent_can_be_repeated_safely(
    link: FaultyLink, namespace: str, fleet: Fleet
) -> None:
    async def program() -> None:
        async with warm(link.url, namespace) as client:
            link.hold(replies=True)
            before = link.calls["enqueue"]
            sending = asyncio.create_task(client.enqueue(call("a")))
            while link.calls["enqueue"] == before:
                await asyncio.sleep(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await sending
            doubt = rota.Uncertain.behind(cancelled.value)
            assert doubt is not None
            assert doubt.ids == ("a",)
            with pytest.raises(TimeoutError) as late:
                async with asyncio.timeout(0.05):
                    await client.enqueue(call("b"))
            assert rota.Uncertain.behind(late.value) is not None
            link.heal()
            assert await client.cancel("a") == "cancelled"
            [handle] = await doubt.arepeat()
            assert (handle.id, handle.duplicate, (await handle.status()).state) == ("a", False, "cancelled")
            with pytest.raises(ValueError, match="arepeat"):
                doubt.repeat()

    asyncio.run(program())
    assert fleet.lane().count("a") == 1


def test_cancelling_one_await_does_not_affect_concurrent_calls(link: FaultyLink, namespace: str) -> None:
    async def program() -> None:
        async with warm(link.url, namespace) as client:
            link.hold(replies=True)
            sent = [asyncio.create_task(client.enqueue(call(f"t{number}"))) for number in range(3)]
            await asyncio.sleep(0)
            sent[1].cancel()
            link.heal()
            assert [(await each).id for each in sent[::2]] == ["t0", "t2"]
            assert link.connections == 1

    asyncio.run(program())


def test_a_call_cancelled_before_it_was_sent_does_not_raise_uncertain(link: FaultyLink, namespace: str) -> None:
    async def program() -> None:
        async with rota.AsyncClient(link.url, namespace) as client:
            link.silence(requests=True, replies=True)
            with pytest.raises(TimeoutError) as late:
                async with asyncio.timeout(0.05):
                    await client.enqueue(call("a"))
            assert rota.Uncertain.behind(late.value) is None
            assert late.value.__cause__ is not None
            assert isinstance(late.value.__cause__.__cause__, rota.Unavailable)

    asyncio.run(program())


@pytest.mark.parametrize("is_connected", [True, False])
def test_calls_to_a_silent_server_time_out_together(is_connected: bool, link: FaultyLink, namespace: str) -> None:
    async def program() -> None:
        async with rota.AsyncClient(link.url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client:
            if is_connected:
                await client.enqueue(work)
            link.silence(requests=True, replies=True)
            began = time.monotonic()
            calls = [client.enqueue(work), client.enqueue_many([work] * BATCH), client.cancel("a"), client.peek("q")]
            found = await asyncio.gather(*calls, client.status("a"), return_exceptions=True)
            assert time.monotonic() - began < IN_TIME_SECONDS
            assert all(isinstance(each, rota.Uncertain if is_connected else rota.Unavailable) for each in found[:-1])
            assert isinstance(found[-1], rota.TaskStatus)
            assert found[-1].state == "unknown"

    asyncio.run(program())


def test_each_command_gets_its_reply_even_if_the_next_is_packed_slowly(link: FaultyLink, namespace: str) -> None:
    first, second, third = (Store(namespace).status(task_id) for task_id in "abc")

    def slow() -> Iterator[ScriptCall[TaskState]]:
        yield first
        time.sleep(0.2)
        yield second
        yield third

    async def program() -> None:
        pool = AioPool(UrlEndpoint(link.url, NO_ACCESS, "{x}:tasks"), TIMEOUT_SECONDS)
        line = await pool.ready(Exchange([], None, time.monotonic() + TIMEOUT_SECONDS))
        link.silence(replies=True)
        answers = await pool.exchange(line, Exchange(slow(), None, time.monotonic() + 0.1))
        pool.close()
        assert [type(answer) for answer in answers] == [NotReplied] * 3

    asyncio.run(program())


def test_a_silent_connection_is_replaced_within_the_timeout(link: FaultyLink, namespace: str, fleet: Fleet) -> None:
    async def program() -> None:
        async with warm(link.url, namespace) as client:
            link.lose_replies(1, cut=False)
            assert (await client.enqueue(call("a"))).id == "a"
            link.lose_replies(1)
            assert (await client.enqueue(call("b"))).id == "b"

    asyncio.run(program())
    assert fleet.lane() == ["a", "b"]


@pytest.fixture(name="resize")
def _resize(server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch) -> rota.Task[[int], int]:
    monkeypatch.setattr(default_clients, "_default", default_clients.DefaultClient())
    rota.configure(redis_url=server.url, namespace=namespace, timeout_seconds=4)

    def resize(n: int) -> int:
        return n

    return rota.task(queue="q", name=f"resize-{namespace}")(resize)


def test_each_event_loop_has_its_own_default_client(resize: rota.Task[[int], int], fleet: Fleet) -> None:
    ids: list[str] = []

    async def program() -> None:
        ids.append((await resize.aenqueue(1)).id)
        ids.append((await resize.using(delay=0).aenqueue(1)).id)
        ids.extend(handle.id for handle in await rota.aenqueue_many([resize.call(1), resize.call(2)]))
        assert rota.default_async_client() is rota.default_async_client()
        assert rota.default_async_client()._driver.timeout_seconds == 4

    threads = [threading.Thread(target=asyncio.run, args=(program(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(program())
    assert sorted(fleet.lane()) == sorted(ids)
    assert len(ids) == 16
    assert len(default_clients._default._of_loops) == 1, "loops that were closed are forgotten"


def test_a_client_serves_one_event_loop_at_a_time(server: Server, namespace: str) -> None:
    client = rota.AsyncClient(server.url, namespace)

    async def enqueue() -> None:
        await client.enqueue(work)
        with pytest.raises(RuntimeError, match="in use in another event loop"):
            await asyncio.to_thread(asyncio.run, client.status("a"))

    asyncio.run(enqueue())
    asyncio.run(enqueue())


def test_a_forked_child_enqueues_over_its_own_connection(server: Server, namespace: str, fleet: Fleet) -> None:
    client = rota.AsyncClient(server.url, namespace)
    asyncio.run(_enqueues(client))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with suppress(BaseException):
            asyncio.run(_enqueues(client))
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.run(_enqueues(client))
    assert len(fleet.lane()) == 3


async def _enqueues(client: rota.AsyncClient) -> None:
    await client.enqueue(work)


def test_a_consumer_takes_tasks_and_settles_them(server: Server, namespace: str, fleet: Fleet) -> None:
    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace) as client:
            await client.enqueue_many([call("a"), call("b"), call("c")])
            async with client.consumer("q", limit=2) as tasks:
                async with await anext(tasks) as first:
                    assert (first.id, first.attempt) == ("a", 1)
                second = await anext(tasks)
                await second.dead("because")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), await anext(tasks):
                        await asyncio.sleep(60)
                tasks.stop()
                assert [task.id async for task in tasks] == []
            assert [(await client.status(each)).state for each in ("a", "b", "c")] == ["done", "dead", "ready"]

    asyncio.run(program())
    assert fleet.lane() == ["c"]


def test_a_call_that_is_connecting_when_the_client_closes_raises_unavailable(link: FaultyLink, namespace: str) -> None:
    async def program() -> None:
        async with rota.AsyncClient(link.url, namespace, timeout_seconds=60) as client:
            link.silence(requests=True, replies=True)
            calls = [asyncio.create_task(client.enqueue(work)), asyncio.create_task(client.peek("q"))]
            while not link.attempts:
                await asyncio.sleep(0.01)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [(type(each), "the client was closed" in str(each)) for each in found] == [(rota.Unavailable, True)] * 2

    asyncio.run(program())


def test_a_call_in_flight_when_the_client_closes_raises_uncertain(link: FaultyLink, namespace: str) -> None:
    async def program() -> None:
        async with warm(link.url, namespace) as client:
            link.hold(replies=True)
            before = link.calls["enqueue"]
            sending = asyncio.create_task(client.enqueue(work))
            while link.calls["enqueue"] == before:
                await asyncio.sleep(0.01)
        with pytest.raises(rota.Uncertain):
            await sending
        assert len(link.attempts) == 1

    asyncio.run(program())


def test_a_consumer_cancelled_while_opening_leaves_no_owner(link: FaultyLink, namespace: str, fleet: Fleet) -> None:
    async def program() -> None:
        async with rota.AsyncClient(link.url, namespace) as client:
            link.delay(0.3)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), client.consumer("q"):
                    pass
            assert await asyncio.to_thread(until, lambda: fleet.redis.zcard(fleet.keys.owners), "its owner")
            link.heal()
            await asyncio.to_thread(until, lambda: not fleet.redis.zcard(fleet.keys.owners), "no owner")

    asyncio.run(program())


def test_a_call_that_blocks_an_event_loop_warns_once_at_the_callers_line(server: Server, namespace: str) -> None:
    async def program(client: rota.Client) -> None:
        client.enqueue(work)
        client.enqueue(work)

    with rota.Client(server.url, namespace) as client, pytest.warns(rota.BlockingCall) as warned:
        asyncio.run(program(client))
    [told] = [each for each in warned if each.category is rota.BlockingCall]
    assert told.filename == __file__
    assert "aenqueue" in str(told.message)


@pytest.mark.filterwarnings("error::rota.BlockingCall")
def test_a_blocking_call_warning_can_be_made_an_error(server: Server, namespace: str) -> None:
    async def program(client: rota.Client) -> None:
        for call in (client.peek, client.peek, client.events):
            with pytest.raises(rota.BlockingCall):
                call()

    with rota.Client(server.url, namespace) as client:
        asyncio.run(program(client))
