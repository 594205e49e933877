"""Chains, groups and `map` in an application's tests. The follow-up task runs after the last member has ended."""

import asyncio
from typing import Any

import pytest

import rota
from rota.tasks.registry import default_registry
from rota.testing import NotRun, capture, eager

ran: list[str] = []


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})
    for task in (work, fail, widen):
        default_registry.add(task)
    ran.clear()


@rota.task(name="grouped_work")
def work(word: str) -> None:
    ran.append(word)


@rota.task(name="grouped_fail", retries=0)
def fail() -> None:
    raise OSError("no")


@rota.task(name="grouped_widen")
def widen(group_id: str) -> None:
    rota.default_client().group(group_id).add([work.call("added")])


def words(*each: str) -> list[rota.Call[None]]:
    return [work.call(word) for word in each]


def test_a_chain_runs_one_task_after_another() -> None:
    with capture() as calls:
        handle = rota.chain(*words("a", "b"), work.using(delay=60).call("c")).enqueue()
        assert (len(handle.ids), [call.id for call in calls]) == (3, [handle.id])
        calls.drain()
        assert (ran, handle.status().state) == (["a", "b"], "scheduled")
        calls.clock.move(60)
        calls.drain()
        assert (ran, handle.wait().id) == (["a", "b", "c"], handle.ids[2])


def test_a_chain_ends_at_a_dead_or_cancelled_task() -> None:
    with capture() as calls:
        handle = rota.chain(fail.call(), *words("never")).enqueue()
        calls.drain(raises=False)
        assert (ran, handle.status().state) == ([], "dead")
        other = rota.chain(*words("never", "never")).enqueue()
        assert other.cancel() == "cancelled"
        calls.drain()
        assert ran == []


def test_the_then_task_of_a_group_runs_once_after_the_last_member() -> None:
    with capture() as calls:
        handle = rota.group([*words("a"), rota.chain(*words("b", "c"))], then=work.call("then")).enqueue()
        with pytest.raises(NotRun, match=r"has not ended: capture\(\) runs no tasks"):
            handle.wait()
        calls.drain()
        assert ran == ["a", "b", "c", "then"]
        assert (handle.wait().state, handle.status().done, handle.status().total) == ("ended", 2, 2)


def test_a_dead_member_of_a_group_runs_on_dead_and_a_cancelled_one_then() -> None:
    with capture() as calls:
        rota.group([fail.call()], then=work.call("then"), on_dead=work.call("sorry")).enqueue()
        group = rota.group([work.using(id="x").call("x")], then=work.call("then"), on_dead=work.call("sorry"))
        handle = group.enqueue()
        rota.cancel("x")
        calls.drain(raises=False)
        assert (ran, handle.status().cancelled) == (["then", "sorry"], 1)


def test_a_group_can_be_extended_and_cancelled() -> None:
    with capture() as calls:
        handle = rota.group([widen.call("g")], then=work.call("then"), id="g").enqueue()
        calls.drain()
        assert ran == ["added", "then"]
        with pytest.raises(rota.GroupEnded):
            handle.add(words("late"))
        other = rota.group(words("never"), then=work.call("never")).enqueue()
        assert (other.cancel(), other.status().is_cancelled, other.cancel()) == (True, True, False)
        calls.drain()
        assert ran == ["added", "then"]


def test_a_group_enqueued_again_is_a_duplicate() -> None:
    with capture() as calls:
        group = rota.group(words("a"), id="g")
        assert [group.enqueue().duplicate for _ in range(2)] == [False, True]
        assert len(calls) == 1


def test_a_capture_forgets_a_group_when_cleared_or_after_two_days() -> None:
    with capture() as calls:
        group = rota.group(words("a"), id="g")
        group.enqueue()
        calls.clear()
        assert not (handle := group.enqueue()).duplicate
        calls.drain()
        calls.clock.move(49)
        assert (handle.status().state, group.enqueue().duplicate) == ("ended", True)
        calls.clock.move(1)
        assert (handle.wait().state, handle.cancel(), group.enqueue().duplicate) == ("unknown", False, False)
        calls.drain()
        assert ran == ["a", "a"]


def test_a_repeated_map_enqueues_only_new_items() -> None:
    reported: list[Any] = []
    with capture() as calls:
        rota.map(work, ["a", "b"], id="m", chunk=1, max_waiting=1, progress=lambda *now: reported.append(now))
        handle = rota.map(work, iter("abc"), id="m", then=work.call("then"))
        assert (len(calls), handle.status().total, reported) == (3, 3, [(0, 2), (1, 2), (2, 2)])


def test_eager_runs_groups_chains_and_maps_at_once() -> None:
    with eager() as attempts:
        rota.group([rota.chain(*words("a", "b")), *words("c")], then=rota.chain(*words("d", "e"))).enqueue()
        assert ran == ["a", "c", "b", "d", "e"]
        assert rota.map(work, "xy", then=work.call("z")).wait().followed_by
        assert (ran[5:], len(attempts)) == (["x", "y", "z"], 8)


def test_eager_runs_groups_enqueued_by_async_clients() -> None:
    async def program() -> None:
        chain = await rota.chain(*words("a", "b")).aenqueue()
        group = await rota.group(words("c"), then=work.call("d")).aenqueue()
        mapped = await rota.amap(work, "ef")
        assert (await chain.wait()).state == "done"
        assert [(await each.wait()).state for each in (group, mapped)] == ["ended", "ended"]

    with eager():
        asyncio.run(program())
    assert ran == ["a", "b", "c", "d", "e", "f"]


def test_in_a_capture_the_next_task_of_a_chain_or_group_is_pending() -> None:
    with capture() as captured:
        chain = rota.chain(work.using(id="one").call("a"), work.using(id="two").call("b")).enqueue()
        rota.group(words("c"), then=work.using(id="last").call("d"), id="g").enqueue()
        client = rota.default_client()
        assert [client.status(each).why for each in ("two", "last")] == [
            "it follows task one, which has not ended",
            "it follows group g, which has not ended",
        ]
        with pytest.raises(NotRun, match="task two is pending, because it follows task one"):
            client.wait("two")
        captured.drain()
        assert [client.status(each).state for each in (*chain.ids, "last")] == ["done"] * 3
