"""No blocking call of the client takes longer than its timeout in total, no matter at which step the server falls
silent. The tests use a link that falls silent, so they do not depend on the kind of server. All calls of a test wait at
the same time.
"""

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import rota
from rota.client.blocking.client import Client
from support.faulty_link import FaultyLink
from support.masters import ON_ONE_SERVER

TIMEOUT_SECONDS = 0.8
IN_TIME_SECONDS = 1.5  # less than two whole timeouts


@contextmanager
def in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < IN_TIME_SECONDS


CALLS: dict[str, Callable[[Client], object]] = {
    "enqueue": lambda client: client.enqueue("work", queue="q"),
    "enqueue_many": lambda client: client.enqueue_many([rota.Call("work", queue="q")] * 1000),
    "cancel": lambda client: client.cancel("a"),
    "peek": lambda client: client.peek("q"),
    "explain": lambda client: client.explain(),
    "events": lambda client: client.events(),
}


def at_once(names: Iterable[str], act: Callable[[str], None]) -> None:
    """Call `act` with each of these names, each in its own thread and all at the same time."""
    with ThreadPoolExecutor(len(CALLS)) as pool:
        for name, done in [(name, pool.submit(act, name)) for name in names]:
            assert done.exception() is None, name


@ON_ONE_SERVER
def test_a_server_silent_at_the_greeting_times_out(link: FaultyLink, namespace: str) -> None:
    link.silence(replies=True)
    url = link.url.replace("redis://", "redis://default:secret@")

    def call(name: str) -> None:
        client = Client(url, namespace, timeout_seconds=TIMEOUT_SECONDS)
        with client, in_time(), pytest.raises(rota.Unavailable):
            CALLS[name](client)

    at_once(CALLS, call)


@ON_ONE_SERVER
def test_a_server_silent_at_the_first_command_times_out(link: FaultyLink, namespace: str) -> None:
    names = [name for name in CALLS if name != "events"]
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(Client(link.url, namespace, timeout_seconds=TIMEOUT_SECONDS)) for name in names
        }
        for client in clients.values():
            client.enqueue("work", queue="q")
        link.silence(replies=True)

        def call(name: str) -> None:
            with in_time(), pytest.raises(rota.Uncertain):
                CALLS[name](clients[name])

        at_once(names, call)


@ON_ONE_SERVER
def test_a_server_silent_at_the_second_command_times_out(link: FaultyLink, namespace: str) -> None:
    with Client(link.url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client:
        client.enqueue("work", queue="q")
        link.lose_replies(2, cut=False)
        with in_time(), pytest.raises(rota.Uncertain) as caught:
            client.enqueue("work", queue="q")
        link.silence(replies=True)
        with in_time(), pytest.raises(rota.Uncertain):
            caught.value.repeat()


@ON_ONE_SERVER
def test_a_server_slow_between_commands_of_one_call_times_out(link: FaultyLink, namespace: str) -> None:
    with Client(link.url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client:
        client.enqueue_many([rota.Call("work", queue=f"q{number}") for number in range(9)])
        client.peek()  # `peek` sends two commands: it reads the queues, and then the tasks of each queue
        link.delay(TIMEOUT_SECONDS / 4)
        with in_time(), pytest.raises(rota.Uncertain):
            client.peek()


def test_a_server_that_accepts_no_connection_times_out(namespace: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        place = deaf.getsockname()
        with socket.create_connection(place):  # this connection fills the backlog, so the next one is not even accepted
            url = f"redis://127.0.0.1:{place[1]}"
            with (
                Client(url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client,
                in_time(),
                pytest.raises(rota.Unavailable),
            ):
                client.enqueue("work", queue="q")


def test_silent_sentinels_time_out(namespace: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        url = f"redis+sentinel://127.0.0.1:{port},127.0.0.1:{port}/main"
        with (
            Client(url, namespace, timeout_seconds=TIMEOUT_SECONDS) as client,
            in_time(),
            pytest.raises(rota.Unavailable),
        ):
            client.enqueue("work", queue="q")
