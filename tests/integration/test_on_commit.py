"""Enqueues that wait for a commit. The enqueue call checks the tasks, and a callback after the commit sends them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.client.blocking.client import Client
from rota.tasks.registry import default_registry
from support.protocol import Fleet
from support.servers import Server

Resize = rota.Task[[int], str]


class Transaction:
    """A stand-in for the transactions of a framework. It calls its callbacks after the commit, or at once if no
    transaction is open.
    """

    def __init__(self, *, is_open: bool = True) -> None:
        self.is_open = is_open
        self.callbacks: list[Callable[[], None]] = []

    def on_commit(self, callback: Callable[[], None]) -> None:
        if self.is_open:
            self.callbacks.append(callback)
        else:
            callback()

    def commit(self) -> None:
        for callback in self.callbacks:
            callback()


@pytest.fixture
def transaction() -> Transaction:
    return Transaction()


@pytest.fixture(name="resize")
def _resize(server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Resize:
    monkeypatch.setattr(default_registry, "_tasks", {})
    monkeypatch.setattr("rota.client.default_clients._default", type(rota.client.default_clients._default)())
    rota.configure(redis_url=server.url, namespace=namespace)
    return rota.task(queue="images")(_resized)


def _resized(image_id: int) -> str:
    return f"resized {image_id}"


def test_the_commit_sends_the_task_under_the_id_of_the_handle(
    resize: Resize, transaction: Transaction, fleet: Fleet
) -> None:
    handle = resize.using(on_commit=transaction.on_commit).enqueue(7)
    assert (fleet.lane("images"), handle.status().state) == ([], "unknown")
    transaction.commit()
    assert (fleet.lane("images"), handle.status().state) == ([handle.id], "ready")


def test_a_callback_called_twice_sends_the_task_once(resize: Resize, transaction: Transaction) -> None:
    handle = resize.using(on_commit=transaction.on_commit).enqueue(7)
    transaction.commit()
    assert handle.cancel() == "cancelled"
    transaction.commit()
    assert handle.status().state == "cancelled"


def test_an_enqueue_outside_a_transaction_returns_the_servers_handle(resize: Resize, fleet: Fleet) -> None:
    at_once = Transaction(is_open=False).on_commit
    first = resize.using(on_commit=at_once, unique=True).enqueue(7)
    second = resize.using(on_commit=at_once, unique=True).enqueue(7)
    assert (second.id, second.duplicate, fleet.lane("images")) == (first.id, True, [first.id])


def test_the_arguments_of_a_task_are_checked_before_the_commit(resize: Resize, transaction: Transaction) -> None:
    with pytest.raises(rota.InvalidArguments, match="too many"):
        resize.using(on_commit=transaction.on_commit).enqueue(7, 8)  # type: ignore[call-arg]  # one too many
    with pytest.raises(ValueError, match="delay must be"):
        resize.using(on_commit=transaction.on_commit, delay=float("nan")).enqueue(7)
    assert transaction.callbacks == []


@pytest.mark.parametrize("wrong", ["commit", 3])
def test_an_on_commit_that_takes_no_callback_is_refused(resize: Resize, wrong: Any) -> None:
    with pytest.raises(TypeError, match="on_commit must be a callable that takes a callback"):
        resize.using(on_commit=wrong).enqueue(7)
    with pytest.raises(TypeError, match="on_commit must be a callable that takes a callback"):
        rota.configure(on_commit=wrong)


def test_a_coroutine_function_is_refused_for_on_commit(resize: Resize) -> None:
    async def on_commit(_: Callable[[], None]) -> None: ...

    with pytest.raises(TypeError, match="that would never be awaited"):
        resize.using(on_commit=on_commit).enqueue(7)


def test_errors_while_sending_are_raised_by_the_commit_callback(resize: Resize, transaction: Transaction) -> None:
    with Client("redis://127.0.0.1:1", timeout_seconds=0.5) as away:
        resize.using(client=away, on_commit=transaction.on_commit).enqueue(7)
        with pytest.raises(rota.Unavailable):
            transaction.commit()


def test_the_default_client_waits_for_commits_unless_a_call_opts_out(
    resize: Resize, transaction: Transaction, fleet: Fleet
) -> None:
    rota.configure(on_commit=transaction.on_commit)
    waits = [resize.enqueue(1), resize.enqueue_in(0, 2), *rota.enqueue_many([resize.call(3), resize.call(4)])]
    now = resize.using(on_commit=None).enqueue(5)
    assert fleet.lane("images") == [now.id]
    transaction.commit()
    assert fleet.lane("images") == [now.id, *(handle.id for handle in waits)]
    rota.configure(on_commit=None)
    assert resize.enqueue(6).id in fleet.lane("images")


def test_an_awaited_enqueue_is_refused_in_a_transaction(resize: Resize, fleet: Fleet) -> None:
    transaction = Transaction()
    rota.configure(on_commit=transaction.on_commit)

    async def program() -> list[str]:
        for refused in (
            resize.aenqueue(1),
            rota.aenqueue_many([resize.call(2)]),
            resize.using(on_commit=transaction.on_commit).aenqueue(3),
            rota.default_async_client().enqueue("send", queue="images"),
        ):
            with pytest.raises(RuntimeError, match="a transaction is open"):
                await refused
        handles = [await resize.using(on_commit=None).aenqueue(4)]
        transaction.is_open = False
        handles += [await resize.aenqueue(5), *await rota.aenqueue_many([resize.call(6)])]
        await rota.default_async_client().aclose()
        return [handle.id for handle in handles]

    sent = asyncio.run(program())
    transaction.commit()
    assert fleet.lane("images") == sent


def test_enqueue_many_waits_for_one_commit_with_all_its_calls(
    resize: Resize, transaction: Transaction, client: Client, fleet: Fleet
) -> None:
    calls = [resize.using(front=True).call(1), resize.call(2)]
    handles = client.enqueue_many(calls, on_commit=transaction.on_commit)
    assert (len(transaction.callbacks), fleet.lane("images")) == (1, [])
    transaction.commit()
    assert fleet.lane("images") == [handle.id for handle in handles]
    with pytest.raises(TypeError, match="pass it to enqueue_many"):
        resize.using(on_commit=transaction.on_commit).call(1)
