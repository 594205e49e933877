"""The faulty link of the fault tests, which simulates a bad network. It must cause exactly the configured faults."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.connection import Connection, ConnectionOptions
from rota.server.server_errors import ConnectionLost
from support.faulty_link import FaultyLink
from support.servers import Server
from support.waiting import until

PIECES = 200


Connect = Callable[..., Connection]


@pytest.fixture(name="connect")
def _connect(link: FaultyLink) -> Iterator[Connect]:
    with ExitStack() as closing:

        def connect(read_seconds: float = 0.3) -> Connection:
            connection = Connection(parse_address(link.url), ConnectionOptions(read_seconds=read_seconds))
            closing.callback(connection.close)
            return connection

        yield connect


def test_requests_are_forwarded_in_order_over_many_connections(
    connect: Connect, link: FaultyLink, namespace: str
) -> None:
    def count(number: int) -> None:
        connection = connect(10)
        for step in range(1, PIECES + 1):
            assert connection.execute("INCR", f"{namespace}:{number}") == step
        connection.close()

    threads = [threading.Thread(target=count, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.calls["incr"] == link.commands - link.calls["client"] == 20 * PIECES
    assert len(link.attempts) == 20
    until(lambda: not link.connections, "the end of all connections")


def test_the_faulty_link_forwards_large_payloads_unchanged(connect: Connect, namespace: str) -> None:
    connection = connect(10)
    text = bytes(range(256)) * 40_000
    connection.execute("SET", namespace, text)
    assert connection.execute("GET", namespace) == text


def test_cutting_the_link_ends_connections_but_allows_new_ones(connect: Connect, link: FaultyLink) -> None:
    connection = connect()
    link.cut()
    with pytest.raises(ConnectionLost):
        connection.execute("PING")
    assert connect().execute("PING")


def test_a_refusing_link_counts_new_connections_and_keeps_existing_ones(connect: Connect, link: FaultyLink) -> None:
    connection = connect()
    link.refuse()
    with pytest.raises(ConnectionLost):
        connect()
    assert connection.execute("PING")
    assert len(link.attempts) == 2
    link.heal()
    assert connect().execute("PING")


@pytest.mark.parametrize("direction", ["requests", "replies"])
def test_silencing_one_direction_of_the_link_keeps_connections_open(
    connect: Connect, link: FaultyLink, namespace: str, direction: str
) -> None:
    connection = connect()
    assert connection.execute("SET", namespace, "before")
    link.silence(**{direction: True})
    with pytest.raises(ConnectionLost, match="did not reply within"):
        connection.execute("SET", namespace, "after")
    link.heal()
    with pytest.raises(ConnectionLost):
        connection.receive()
    assert connect().execute("GET", namespace) == (b"before" if direction == "requests" else b"after")


def test_held_requests_arrive_late_even_after_the_sender_closed(
    connect: Connect, link: FaultyLink, namespace: str
) -> None:
    connection = connect()
    assert connection.execute("PING")
    link.hold(requests=True)
    with pytest.raises(ConnectionLost, match="did not reply within"):
        connection.execute("SET", namespace, "late")
    connection.close()
    link.heal()
    until(lambda: connect().execute("GET", namespace) == b"late", "the late copy")


def test_the_link_can_hold_one_connection_at_a_given_message(
    connect: Connect, link: FaultyLink, namespace: str
) -> None:
    held, free = connect(), connect()
    with socket.socket(fileno=os.dup(held.fileno())) as same:
        port = same.getsockname()[1]
    link.gate = lambda name, is_reply, of: (name, is_reply, of) != ("incr", True, port)
    assert free.execute("INCR", namespace) == 1
    with pytest.raises(ConnectionLost, match="did not reply within"):
        held.execute("INCR", namespace)
    assert free.execute("GET", namespace) == b"2"
    link.heal()
    assert held.receive() == 2


def test_a_delay_of_the_link_applies_to_each_direction_and_keeps_the_order(
    connect: Connect, link: FaultyLink, namespace: str
) -> None:
    connection = connect(10)
    assert connection.execute("PING")
    link.delay(0.05, jitter=0.02)
    link.stall_some(0.2, 0.1)
    began = time.monotonic()
    for number in range(1, 6):
        assert connection.execute("INCR", namespace) == number
    assert time.monotonic() - began >= 5 * 0.1


def test_the_link_can_lose_the_reply_of_a_script_after_its_execution(
    connect: Connect, link: FaultyLink, namespace: str
) -> None:
    store = Store(namespace)
    enqueue = store.enqueue("nonce", [NewTask("a", "q", b'["a","q","t",[]]')])
    connection = connect()
    connection.run(store.audit())
    link.lose_replies(1, of="enqueue")
    connection.run(store.audit())
    with pytest.raises(ConnectionLost):
        connection.run(enqueue)
    assert link.lost == {"enqueue": 1}
    assert connect().run(store.audit()).accepted == 1


def test_the_link_forwards_commands_sent_as_plain_text(link: FaultyLink) -> None:
    with socket.create_connection(("127.0.0.1", link.port)) as plain:
        for _ in range(2):
            plain.sendall(b"TIME\r\n")
            assert plain.recv(64).startswith(b"*2")


def test_the_link_resets_connections_if_there_is_no_server(connect: Connect, link: FaultyLink, server: Server) -> None:
    link.point_at(1)
    with pytest.raises(ConnectionLost):
        connect()
    link.point_at(server.port)
    assert connect().execute("PING")
