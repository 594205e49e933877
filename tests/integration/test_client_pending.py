"""Pending tasks of chains and groups, which are not enqueued yet: their status by id, and how to wait for them."""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rota
from rota.client.blocking.client import Client
from support.protocol import Fleet
from support.servers import Server
from support.waiting import until


def take(client: Client, count: int, end: Callable[[rota.LeasedTask], None]) -> list[str]:
    """Take this many tasks, and call `end` with each of them to end it. Returns their ids."""
    taken = []
    with client.consumer("default") as consumer:
        for task in itertools.islice(consumer, count):
            taken.append(task.id)
            end(task)
    return taken


def link(task_id: str) -> rota.Call[Any]:
    return rota.Call("work", (task_id,), queue="default", id=task_id, result_ttl=60)


def test_a_pending_task_shows_which_task_or_group_it_follows(client: Client) -> None:
    client.enqueue(rota.chain(link("one"), link("two"), link("three")))
    client.enqueue(rota.group([rota.chain(link("a"), link("b"))], then=link("last"), on_dead=link("sorry"), id="g"))
    told = {each: client.status(each) for each in ("two", "three", "b", "last", "sorry")}
    assert {status.state for status in told.values()} == {"pending"}
    assert [status.why.split()[2:4] for status in told.values()] == [
        ["task", "one,"], ["task", "one,"], ["task", "a,"], ["group", "g,"], ["group", "g,"],
    ]  # fmt: skip
    assert client.status("one,").state == client.status("tw").state == client.status("wo").state == "unknown"
    with pytest.raises(rota.WaitTimeout, match=r"^task last has not ended within 0\.05 s, because it follows group g$"):
        client.result("last", timeout=0.05)


def test_a_pending_task_is_found_although_a_group_has_many_members(client: Client) -> None:
    client.enqueue(rota.group([link(f"m{number}") for number in range(2_000)], then=link("last"), id="many"))
    client.enqueue(rota.chain(link("one"), link("two")))
    assert [client.status(each).state for each in ("last", "two", "none")] == ["pending", "pending", "unknown"]


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_a_wait_for_a_pending_task_lasts_until_its_own_end(
    client: Client, server: Server, fleet: Fleet, is_async: bool
) -> None:
    client.enqueue(rota.chain(link("one"), link("two"), link("three")))
    client.enqueue(rota.group([link("a")], then=link("last"), id="g"))

    async def ends() -> list[str]:
        async with rota.AsyncClient(server.url, client.namespace) as there:
            found = await asyncio.gather(*[there.wait(each, timeout=30) for each in ("three", "last")])
        return [status.state for status in found]

    def wait_for_both() -> list[str]:
        if is_async:
            return asyncio.run(ends())
        return [client.wait(each, timeout=30).state for each in ("three", "last")]

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_both)
        until(lambda: fleet.redis.hexists(fleet.keys.waiters, "one"))
        assert sorted(take(client, 5, lambda task: task.done())) == ["a", "last", "one", "three", "two"]
        assert waiting.result(timeout=30) == ["done", "done"]


def test_a_wait_for_a_dropped_chain_task_returns_unknown(client: Client, fleet: Fleet) -> None:
    client.enqueue(rota.chain(link("one"), link("two")))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait, "two", 30)
        until(lambda: fleet.redis.hexists(fleet.keys.waiters, "one"))
        take(client, 1, lambda task: task.dead("no use"))
        status = waiting.result(timeout=30)
    assert status.state == "unknown"
    assert "would have followed a task that did not succeed" in status.why
