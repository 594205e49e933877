"""Chains, groups and `map` with both clients on a real server. A consumer takes the tasks in place of a worker."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import rota
from rota.client.blocking.client import Client
from rota.client.command_replies import Exchange, NotReplied, Reply
from rota.client.flow_sender import ROUND_MEMBERS
from rota.tasks.registry import default_registry
from support.faulty_link import FaultyLink
from support.protocol import Fleet
from support.servers import Server
from support.waiting import until

# The client timeout in seconds. A connection whose reply is lost is closed at once, so only a busy machine can make a
# call wait this long.
PATIENCE = 30.0
Take = Callable[..., list[str]]
Link = rota.Call[Any] | rota.Chain


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {"mapped_work": work})


@pytest.fixture(name="take")
def _take(client: Client) -> Iterator[Take]:
    """Yield a function that takes the given number of tasks, one after the other, and ends each of them in the given
    way. It returns the names of the tasks with their arguments.
    """
    with client.consumer("default") as consumer:

        def take(count: int, how: str = "done", *why: str) -> list[str]:
            taken = []
            for task in itertools.islice(consumer, count):
                taken.append(f"{task.name}{''.join(map(str, task.args))}")
                getattr(task, how)(*why)
            return taken

        yield take


@contextmanager
def taking(client: Client) -> Iterator[list[int]]:
    """Claim and end all tasks in a thread during the block. Yields a list, to which the thread appends the number of
    each task, which is its first argument.
    """
    taken: list[int] = []
    with client.consumer("default", limit=4) as consumer:

        def run() -> None:
            for task in consumer:
                with task:
                    taken.append(task.args[0])

        thread = threading.Thread(target=run)
        thread.start()
        yield taken
        consumer.stop()
        thread.join()


def call(name: str, *args: object, **options: Any) -> rota.Call[Any]:
    return rota.Call(name, args, queue="default", **options)


@rota.task(name="mapped_work")
def work(number: int) -> None: ...


def numbers(fleet: Fleet) -> list[int]:
    """Return the numbers of the tasks in the ready lane, in order. The number of a task is its first argument."""
    bodies = fleet.redis.hmget(fleet.keys.tasks, fleet.lane("default"))
    return [json.loads(str(body))[3][0] for body in bodies]


class TestChains:
    def test_each_task_is_enqueued_when_the_previous_one_is_done(self, client: Client, take: Take) -> None:
        handle = client.enqueue(rota.chain(call("a", 1), call("b", 2), call("c", 3)))
        assert (len(handle.ids), handle.id, handle.duplicate) == (3, handle.ids[0], False)
        assert (handle.status().id, handle.status().state) == (handle.ids[0], "ready")
        assert take(1) == ["a1"]
        assert (handle.status().id, handle.status().state) == (handle.ids[1], "ready")
        assert take(2) == ["b2", "c3"]
        ended = handle.wait(timeout=5)
        assert (ended.id, ended.state) == (handle.ids[2], "done")

    def test_a_chain_ends_with_a_cancelled_or_dead_task(self, client: Client, take: Take) -> None:
        handle = client.enqueue(rota.chain(call("a"), call("b"), call("c")))
        take(1)
        assert handle.cancel() == "cancelled"
        assert (handle.wait(5).id, handle.wait(5).state) == (handle.ids[1], "cancelled")
        dead = client.enqueue(rota.chain(call("a"), call("b")))
        take(1, "dead", "why")
        assert (dead.wait(5).id, dead.wait(5).state) == (dead.id, "dead")
        assert client.status(dead.ids[1]).state == "unknown"

    def test_waiting_for_a_chain_has_one_timeout_for_all_its_tasks(self, client: Client) -> None:
        with pytest.raises(rota.WaitTimeout):
            client.enqueue(rota.chain(call("a"), call("b"))).wait(timeout=0.01)

    def test_enqueueing_a_chain_again_adds_no_task(self, client: Client, fleet: Fleet) -> None:
        chain = rota.chain(call("a", id="a"), call("b"))
        client.enqueue(chain)
        handle = client.enqueue(chain)
        assert (handle.ids, handle.duplicate, fleet.lane("default")) == (("a",), True, ["a"])

    def test_a_delay_counts_from_the_end_of_the_previous_task(self, client: Client, take: Take) -> None:
        handle = client.enqueue(rota.chain(call("a"), call("b", delay=60)))
        take(1)
        assert handle.status().state == "scheduled"

    def test_a_chain_that_lost_two_replies_can_be_repeated_safely(
        self, server: Server, namespace: str, fleet: Fleet
    ) -> None:
        with FaultyLink(server.port) as link, Client(link.url, namespace, timeout_seconds=PATIENCE) as client:
            client.enqueue(rota.chain(call("warm"), call("warm")))
            link.lose_replies(2)
            with pytest.raises(rota.Uncertain, match=r"repeat\(\) on this error") as caught:
                client.enqueue(rota.chain(call("a", id="a"), call("b", id="b")))
            assert caught.value.ids == ("a",)
            [handle] = caught.value.repeat()
            assert (handle.id, handle.duplicate) == ("a", False)
        assert fleet.lane("default").count("a") == 1


class TestGroups:
    def test_the_follow_up_of_a_group_is_enqueued_when_all_members_have_ended(self, client: Client, take: Take) -> None:
        members: list[Link] = [call("a"), rota.chain(call("b"), call("c"))]
        handle = client.enqueue(rota.group(members, then=call("then"), id="g"))
        status = handle.status()
        assert (handle.id, status.state, status.total, status.left) == ("g", "closed", 2, 2)
        assert take(3) == ["a", "b", "c"]
        ended = handle.wait(timeout=5)
        assert (ended.state, ended.done, ended.left, ended.is_cancelled) == ("ended", 2, 0, False)
        assert take(1) == ["then"]
        assert client.wait(ended.followed_by, 5).state == "done"

    def test_the_on_dead_task_is_enqueued_if_a_member_is_dead(self, client: Client, take: Take) -> None:
        handle = client.enqueue(rota.group([call("a"), call("b")], then=call("then"), on_dead=call("sorry")))
        take(1, "dead", "why")
        take(1)
        assert (handle.wait(5).dead, handle.wait(5).done) == (1, 1)
        assert take(1) == ["sorry"]

    def test_a_group_without_members_ends_at_once(self, client: Client, take: Take) -> None:
        assert client.enqueue(rota.group([], then=call("then"))).wait(5).total == 0
        assert take(1) == ["then"]

    def test_members_can_be_added_until_the_group_ends(self, client: Client, take: Take) -> None:
        handle = client.enqueue(rota.group([call("a")], then=call("then")))
        added = client.group(handle.id).add([call("b"), rota.chain(call("c"), call("d"))])
        assert [type(each) for each in added] == [rota.Handle, rota.ChainHandle]
        assert take(5) == ["a", "b", "c", "d", "then"]
        with pytest.raises(rota.GroupEnded, match=rf"group {handle.id} accepts no more members, .*: 0 of 1 were added"):
            handle.add([call("late")])

    def test_a_cancelled_group_ends_without_a_follow_up(self, client: Client, fleet: Fleet) -> None:
        handle = client.enqueue(rota.group([call("a"), call("b")], then=call("then")))
        assert (handle.cancel(), handle.cancel()) == (True, False)
        ended = handle.wait(5)
        assert (ended.state, ended.cancelled, ended.is_cancelled, ended.followed_by) == ("ended", 2, True, "")
        assert fleet.redis.hlen(fleet.keys.tasks) == 2  # a cancelled member is still stored, until a claim drops it
        with pytest.raises(rota.GroupEnded):
            handle.add([call("late")])

    def test_cancelling_a_group_gives_each_command_the_full_timeout(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = client.enqueue(rota.group([call("a"), call("b")]))
        exchange = client._driver.pool.exchange
        deadlines: list[float] = []

        def record_deadline(asked: Exchange[Any]) -> list[Reply[Any]]:
            deadlines.append(asked.deadline)
            return exchange(asked)

        monkeypatch.setattr(client._driver.pool, "exchange", record_deadline)
        assert handle.cancel()
        assert len(set(deadlines)) == 3

    def test_the_status_of_a_group_that_never_existed_is_unknown(self, client: Client) -> None:
        handle = client.group("nobody")
        assert (handle.status().state, handle.wait(5).state, handle.cancel()) == ("unknown", "unknown", False)

    def test_waiting_for_a_group_raises_wait_timeout(self, client: Client) -> None:
        handle = client.enqueue(rota.group([call("a")], id="g"))
        with pytest.raises(rota.WaitTimeout, match="group g has not ended within"):
            handle.wait(timeout=0.01)

    def test_a_group_enqueued_again_is_a_duplicate(self, client: Client, fleet: Fleet) -> None:
        group = rota.group([call("a"), call("b")], id="g")
        assert [client.enqueue(group).duplicate for _ in range(2)] == [False, True]
        assert len(fleet.lane("default")) == 2

    def test_repeating_an_interrupted_group_continues_after_its_accepted_members(
        self, server: Server, namespace: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        group = rota.group([call("work", number) for number in range(ROUND_MEMBERS + 100)], id="g")
        with FaultyLink(server.port) as link, Client(link.url, namespace, timeout_seconds=PATIENCE) as client:
            exchange = client._driver.pool.exchange
            # Each 1 stands for a lost reply: first the reply to the last batch, and then the reply to the repetition of
            # this batch.
            faults = iter([0, 1, 1])

            def losing(asked: Exchange[Any]) -> list[Reply[Any]]:
                if next(faults, 0):
                    link.lose_replies(1)
                return exchange(asked)

            monkeypatch.setattr(client._driver.pool, "exchange", losing)
            with pytest.raises(rota.Uncertain) as caught:
                client.enqueue(group)
            assert len(caught.value.ids) == 100
            assert "with id='g', it continues exactly where it stopped" in caught.value.__notes__[0]
            [repeated] = caught.value.repeat()
            status = client.group(repeated.id).status()
            assert (repeated.id, status.total, status.state) == ("g", ROUND_MEMBERS + 100, "closed")
            assert client.enqueue(group).duplicate
        assert fleet.redis.llen(fleet.keys.ready_lane("default")) == ROUND_MEMBERS + 100

    def test_repeating_an_addition_raises_if_the_group_has_ended(
        self, server: Server, namespace: str, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = client.enqueue(rota.group([call("a")], id="g"))
        with Client(server.url, namespace) as other, monkeypatch.context() as cut_off:
            unanswered: list[Reply[Any]] = [NotReplied("it was cut off")]
            cut_off.setattr(other._driver.pool, "exchange", lambda _asked: unanswered)
            with pytest.raises(rota.Uncertain) as caught:
                other.group("g").add([call("b")])
            cut_off.undo()
            handle.cancel()
            with pytest.raises(rota.GroupEnded, match="0 of 1 were added"):
                caught.value.repeat()

    def test_repeating_the_enqueue_of_an_expired_group_adds_no_member_twice(
        self, server: Server, namespace: str, fleet: Fleet, take: Take
    ) -> None:
        with FaultyLink(server.port) as link, Client(link.url, namespace, timeout_seconds=PATIENCE) as client:
            client.enqueue(rota.group([]))
            link.lose_replies(2)
            with pytest.raises(rota.Uncertain) as caught:
                client.enqueue(rota.group([call("a"), call("b")], id="g"))
            assert take(2) == ["a", "b"]
            fleet.redis.delete(fleet.keys.group("g"))  # simulates that the group has expired
            [repeated] = caught.value.repeat()
        assert (repeated.id, fleet.lane("default")) == ("g", [])

    def test_groups_and_chains_can_wait_for_a_commit(
        self, server: Server, namespace: str, client: Client, take: Take
    ) -> None:
        callbacks: list[Callable[[], None]] = []
        group = client.enqueue(rota.group([call("a")], then=call("then")), on_commit=callbacks.append)
        waiting = Client(server.url, namespace, on_commit=callbacks.append)
        chain = rota.chain(call("b"), call("c")).enqueue(client=waiting)
        assert (group.status().state, chain.status().state) == ("unknown", "unknown")
        for callback in callbacks:
            callback()
        assert (group.status().state, chain.status().state) == ("closed", "ready")
        assert take(4) == ["a", "b", "then", "c"]
        waiting.close()

    def test_a_group_in_a_namespace_without_a_fleet_causes_a_warning(self, server: Server, namespace: str) -> None:
        with Client(server.url, f"{namespace}-unseen") as client, pytest.warns(rota.UnseenNamespace):
            client.enqueue(rota.group([call("a")]))


class TestMap:
    def test_a_map_keeps_at_most_max_waiting_tasks_in_the_queue(self, client: Client, fleet: Fleet) -> None:
        waiting: list[int] = []

        def items() -> Iterator[int]:
            for number in range(60):
                waiting.append(fleet.redis.llen(fleet.keys.ready_lane("default")))
                yield number

        told: list[tuple[int, int | None]] = []
        with taking(client) as taken:
            handle = client.map(
                work, items(), chunk=5, max_waiting=10, then=call("work", 60), progress=lambda *now: told.append(now)
            )
            assert handle.wait(timeout=20).done == 60
            until(lambda: 60 in taken, "the follow-up")
        assert sorted(taken) == list(range(61))
        assert max(waiting) <= 10
        assert told == [(number, None) for number in range(0, 61, 5)]

    def test_an_interrupted_map_continues_after_the_accepted_items(self, client: Client, fleet: Fleet) -> None:
        def broken() -> Iterator[int]:
            yield from range(250)
            raise OSError("the database went away")

        with pytest.raises(OSError, match="went away") as caught:
            client.map(work, broken(), id="m")
        assert (
            "group m is incomplete, and has at least 200 items: if the group is mapped again with id='m'"
            in (caught.value.__notes__[0])
        )
        assert (client.group("m").status().state, client.group("m").status().cursor) == ("open", 200)
        with pytest.raises(rota.InvalidArguments, match=r"items\[230\]"):
            client.map(work, [*range(230), {1: 2}], id="m", chunk=10)
        handle = client.map(work, range(400), id="m", then=call("then"))
        assert (handle.duplicate, handle.status().state, handle.status().total) == (False, "closed", 400)
        assert numbers(fleet) == list(range(400))

    def test_mapping_the_same_items_again_adds_nothing(self, client: Client, take: Take) -> None:
        client.map(work, range(3), id="m")
        assert client.map(work, range(3), id="m").status().total == 3
        assert client.map(work, range(3), id="m").duplicate
        take(3)
        assert client.map(work, range(3), id="m").duplicate
        with pytest.raises(rota.GroupEnded, match="it accepted the first 3 items, but there are more"):
            client.map(work, range(4), id="m")

    def test_a_cancelled_map_accepts_no_more_items(self, client: Client) -> None:
        def items() -> Iterator[int]:
            yield from range(10)
            client.group("m").cancel()
            yield from range(10)

        with pytest.raises(rota.GroupEnded, match=r"group m .*: 10 items were accepted"):
            client.map(work, items(), id="m", chunk=10)
        with pytest.raises(rota.GroupEnded, match="it was cancelled"):
            client.map(work, range(10), id="m")

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_lost_replies_neither_lose_nor_duplicate_items_of_a_map(
        self, server: Server, namespace: str, fleet: Fleet, lost: int
    ) -> None:
        with FaultyLink(server.port) as link, Client(link.url, namespace, timeout_seconds=PATIENCE) as client:
            client.map(work, range(2), id="warm")

            def items() -> Iterator[int]:
                for number in range(30):
                    if number == 20:
                        link.lose_replies(lost)
                    yield number

            assert client.map(work, items(), chunk=10).status().total == 30
        assert fleet.redis.llen(fleet.keys.ready_lane("default")) == 32

    def test_enqueue_many_repeats_only_calls_without_a_reply(
        self, client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exchange = client._driver.pool.exchange
        sent: list[int] = []

        def faulty(asked: Exchange[Any]) -> list[Reply[Any]]:
            commands = list(asked.commands)
            sent.append(len(commands))
            # The first attempt sends the whole chunk as four commands, but only the first command, with 125 calls, gets
            # a reply.
            if len(commands) == 4:
                return [*exchange(asked._replace(commands=commands[:1])), *[NotReplied("it was cut off")] * 3]
            if len(commands) == 3 and sent.count(3) == 1:  # the client repeats the commands that got no reply
                raise rota.Unavailable("the server is away")
            return exchange(asked._replace(commands=commands))

        monkeypatch.setattr(client._driver.pool, "exchange", faulty)
        assert client.map(work, range(480), chunk=480).status().total == 480
        assert (sent.count(4), sent.count(3)) == (1, 2)
        assert numbers(fleet) == list(range(480))

    def test_enqueue_many_reports_its_progress(self, client: Client) -> None:
        told: list[tuple[int, int | None]] = []
        handles = client.enqueue_many(
            [call("work", number) for number in range(4500)], progress=lambda *now: told.append(now)
        )
        assert (len(handles), told) == (4500, [(4000, 4500), (4500, 4500)])

    def test_a_progress_bar_is_drawn(self, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
        client.map(work, range(3), progress=True)
        assert "3/3" in capsys.readouterr().err


def test_the_asyncio_client_has_chains_groups_and_maps(server: Server, namespace: str, client: Client) -> None:
    async def program(consuming: ExitStack) -> list[int]:
        async with rota.AsyncClient(server.url, namespace) as other:
            chain = await other.enqueue(rota.chain(call("work", 1), call("work", 2)))
            group = await other.enqueue(rota.group([call("work", 3), call("work", 4)], then=call("work", 5)))
            added = await group.add([call("work", 6), rota.chain(call("work", 7), call("work", 8))])
            taken = await asyncio.to_thread(consuming.enter_context, taking(client))
            mapped = await other.map(work, iter(range(10, 40)), chunk=5, max_waiting=10, then=call("work", 40))
            assert (await chain.wait(20)).id == chain.ids[1]
            assert [(await each.wait(20)).state for each in added] == ["done", "done"]
            assert ((await group.wait(20)).done, (await mapped.wait(20)).done) == (4, 30)
            assert (await chain.status()).state == "done"
            assert (await chain.cancel(), await group.cancel()) == ("unknown", False)
            assert (await mapped.status()).state == "ended"
            return taken

    with ExitStack() as consuming:
        taken = asyncio.run(program(consuming))
        until(lambda: len(taken) == 39, "all, with the follow-up")
    assert sorted(taken) == [*range(1, 9), *range(10, 41)]


def test_an_async_cancel_ends_all_members(server: Server, namespace: str) -> None:
    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace) as client:
            group = await client.enqueue(rota.group([call("a"), call("b")], then=call("then")))
            assert await group.cancel()
            ended = await group.wait(5)
            assert (ended.state, ended.cancelled, ended.is_cancelled) == ("ended", 2, True)

    asyncio.run(program())


def test_an_uncertain_async_group_can_be_repeated_safely(server: Server, namespace: str, fleet: Fleet) -> None:
    async def program(link: FaultyLink) -> None:
        async with rota.AsyncClient(link.url, namespace, timeout_seconds=PATIENCE) as client:
            await client.enqueue(rota.group([], id="warm"))
            link.lose_replies(2)
            with pytest.raises(rota.Uncertain) as caught:
                await client.enqueue(rota.group([call("a"), call("b")], id="g"))
            [repeated] = await caught.value.arepeat()
            status = await client.group(repeated.id).status()
            assert (status.id, status.total, status.state) == ("g", 2, "closed")

    with FaultyLink(server.port) as link:
        asyncio.run(program(link))
    assert len(fleet.lane("default")) == 2


def test_an_async_chain_is_refused_in_a_transaction(server: Server, namespace: str, fleet: Fleet) -> None:
    async def program() -> None:
        async with rota.AsyncClient(server.url, namespace, on_commit=lambda _callback: None) as client:
            with pytest.raises(RuntimeError, match="a transaction is open"):
                await client.enqueue(rota.chain(call("work", 1)))

    asyncio.run(program())
    assert fleet.lane("default") == []


def test_a_map_is_refused_in_a_transaction(server: Server, namespace: str, fleet: Fleet) -> None:
    with (
        Client(server.url, namespace, on_commit=lambda _callback: None) as client,
        pytest.raises(RuntimeError, match=r"a transaction is open, and map\(\) enqueues at once"),
    ):
        client.map(work, range(3))
    assert fleet.lane("default") == []
