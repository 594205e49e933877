"""Chains, groups and `map` of a client on a real server, taken by a consumer as workers take them."""

import itertools
from collections.abc import Callable, Iterator

import pytest

import rota
from rota.client.client import Client
from rota.registry import default_registry


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_registry, "_tasks", {})


@pytest.fixture(name="take")
def _take(client: Client) -> "Iterator[Callable[..., list[str]]]":
    """Runs so many tasks, one at a time; returns what each was."""
    with client.consumer("default") as consumer:

        def take(count: int, how: str = "done") -> list[str]:
            taken = []
            for task in itertools.islice(consumer, count):
                taken.append(f"{task.name}{list(task.args)}")
                getattr(task, how)()
            return taken

        yield take


def call(name: str, *args: object, **options: object) -> rota.Call[object]:
    return rota.Call(name, args, queue="default", **options)  # type: ignore[arg-type]  # whichever a test gives


class TestChains:
    def test_each_runs_when_the_one_before_is_done(self, client: Client, take: Callable[..., list[str]]) -> None:
        handle = client.enqueue(rota.chain(call("first", 1), call("second", 2), call("third")))
        assert (len(handle.ids), handle.id, handle.duplicate) == (3, handle.ids[0], False)
        assert handle.status().id == handle.ids[0]
        assert take(1) == ["first[1]"]
        assert (handle.status().id, handle.status().state) == (handle.ids[1], "ready")
        assert take(2) == ["second[2]", "third[]"]
        ended = handle.wait(timeout=5)
        assert (ended.id, ended.state) == (handle.ids[2], "done")

    def test_what_is_cancelled_is_the_last(self, client: Client, take: Callable[..., list[str]]) -> None:
        handle = client.enqueue(rota.chain(call("first"), call("second"), call("third")))
        take(1)
        assert handle.cancel() == "cancelled"
        assert (handle.wait(5).id, handle.wait(5).state) == (handle.ids[1], "cancelled")
        assert client.status(handle.ids[2]).state == "unknown"

    def test_of_a_duplicate_nothing_is_added(self, client: Client) -> None:
        client.enqueue(rota.chain(call("first", id="a"), call("second")))
        handle = client.enqueue(rota.chain(call("first", id="a"), call("second")))
        assert (handle.ids, handle.duplicate) == (("a",), True)

    def test_a_delay_counts_from_the_end_of_the_one_before(
        self, client: Client, take: Callable[..., list[str]]
    ) -> None:
        handle = client.enqueue(rota.chain(call("first"), call("second", delay=60)))
        take(1)
        assert handle.status().state == "scheduled"


class TestGroups:
    def test_what_follows_is_there_when_the_last_has_ended(
        self, client: Client, take: Callable[..., list[str]]
    ) -> None:
        members: list[rota.Call[object] | rota.Chain] = [call("one", 1), rota.chain(call("two"), call("three"))]
        handle = client.enqueue(rota.group(members, then=call("then")))
        assert (handle.status().state, handle.status().total, handle.status().left) == ("closed", 2, 2)
        assert sorted(take(2)) == ["one[1]", "two[]"]
        assert take(1) == ["three[]"]
        ended = handle.wait(timeout=5)
        assert (ended.state, ended.done, ended.left) == ("ended", 2, 0)
        assert take(1) == ["then[]"]
        assert client.status(ended.followed_by).state == "done"
