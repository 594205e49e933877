"""The client's connections: each call receives its own reply. The tests also check which server the client uses, and
how much data it sends at once.
"""

import math
import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import redis

import rota
from rota.client.blocking.client import Client
from rota.client.command_replies import Exchange, NotReplied, Replied, Reply
from rota.client.timed_connections import ClientPool, TimedConnection
from rota.protocol.new_tasks import NewTask
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH, Store
from rota.protocol.wire import command, pack
from rota.server.address import NO_ACCESS, Address, parse_address
from rota.server.connection import Connection
from rota.server.endpoint import UrlEndpoint
from rota.server.session import Session
from support.protocol import Fleet, body_of
from support.servers import Server
from support.waiting import until

T = TypeVar("T")
PAUSE_MS = 300
MIB = 1 << 20


def call(task_id: str) -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


def exchange(client: Client, commands: Iterable[ScriptCall[T]]) -> list[Reply[T]]:
    return client._driver.pool.exchange(Exchange(commands, None, time.monotonic() + 5))


@contextmanager
def borrowed(pool: ClientPool) -> Iterator[TimedConnection]:
    """Yield the connection that the next exchange would use. During the block, only the test uses this connection."""
    connection = pool._take(math.inf)
    yield connection
    pool._kept.append(connection)


@pytest.mark.parametrize("warm", [True, False], ids=["waiting for the answer", "being greeted"])
def test_the_late_reply_to_an_interrupted_call_reaches_no_later_call(
    warm: bool, client: Client, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    if warm:
        client.enqueue(call("before"))

    def interrupted(*_: object, **__: object) -> object:
        raise rota.TimeLimit

    redis_client.client_pause(PAUSE_MS)  # the replies arrive after the interruption
    monkeypatch.setattr(Session, "reply", interrupted)
    with pytest.raises(rota.TimeLimit):
        client.enqueue(call("interrupted"))
    monkeypatch.undo()
    assert client.cancel("nobody") == "unknown"
    assert client.enqueue(call("after")).id == "after"
    assert client.status("after").state == "ready"


def test_an_unread_reply_is_noticed_before_the_connection_is_reused(client: Client) -> None:
    client.enqueue(call("a"))
    with borrowed(client._driver.pool) as connection:
        connection.send(command((pack(("PING",)),)))
        select.select([connection], [], [])
    assert client.enqueue(call("a")).duplicate


def connections_of_clients(redis_client: "redis.Redis") -> list[str]:
    """Return the ids of the connections of Rota's clients. They are recognized by their last command, which called a
    script.
    """
    return [each["id"] for each in redis_client.client_list() if "eval" in each["cmd"]]


def test_calls_one_after_another_share_one_connection(client: Client, redis_client: "redis.Redis") -> None:
    before = set(connections_of_clients(redis_client))
    for number in range(20):
        client.enqueue(call(f"t-{number}"))
    assert len(set(connections_of_clients(redis_client)) - before) == 1


def test_a_connection_closed_by_the_server_is_replaced_before_sending(
    client: Client, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(connections_of_clients(redis_client))
    client.enqueue(call("a"))
    with borrowed(client._driver.pool) as connection:
        (used,) = set(connections_of_clients(redis_client)) - before
        redis_client.client_kill_filter(_id=used)
        select.select([connection], [], [])
    sent: list[bytes] = []
    send = Connection.send

    def record_and_send(self: Connection, data: bytes) -> None:
        sent.append(data)
        send(self, data)

    monkeypatch.setattr(Connection, "send", record_and_send)
    assert not client.enqueue(call("b")).duplicate
    assert len([data for data in sent if b"EVALSHA" in data]) == 1


def test_a_closed_client_keeps_no_connection_and_may_be_used_again(client: Client, redis_client: "redis.Redis") -> None:
    before = set(connections_of_clients(redis_client))
    client.enqueue(call("a"))
    client.close()
    assert set(connections_of_clients(redis_client)) - before == set()
    assert client.enqueue(call("a")).duplicate


def test_the_client_bounds_how_much_it_sends_at_once_for_large_tasks(
    client: Client, server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send_all = client._driver.pool.exchange

    def weighed(asked: Exchange[T]) -> list[Reply[T]]:
        made = list(asked.commands)
        sizes.append(sum(len(command.by_sha()) for command in made))
        return send_all(asked._replace(commands=made))

    monkeypatch.setattr(client._driver.pool, "exchange", weighed)
    handles = client.enqueue_many(rota.Call("work", ["x" * 200_000], queue="q") for _ in range(50))
    fleet = Fleet(server, namespace)
    assert fleet.lane() == [handle.id for handle in handles]
    fleet.close()
    assert sum(sizes) > 9 * MIB
    assert max(sizes) < 4.1 * MIB


def enqueues(store: Store, *ids: str) -> list[ScriptCall[Any]]:
    """Return a separate script call for each of these ids, which enqueues a task with this id."""
    return [store.enqueue(f"nonce-{task_id}", [NewTask(task_id, "q", body_of(task_id))]) for task_id in ids]


def test_the_server_executes_a_command_while_the_client_packs_the_next(client: Client, fleet: Fleet) -> None:
    client.enqueue(call("before"))  # loads the script into the server, which otherwise would refuse the first call
    first, second = enqueues(fleet.store, "a", "b")

    def made_when_the_server_has_done_the_first() -> Iterator[ScriptCall[Any]]:
        yield first
        until(lambda: "a" in fleet.lane(), "the first command to be carried out")
        yield second

    answers = exchange(client, made_when_the_server_has_done_the_first())
    assert [type(answer) for answer in answers] == [Replied, Replied]
    assert fleet.lane()[-2:] == ["a", "b"]


def test_a_call_interrupted_between_commands_leaves_no_reply_for_the_next_call(client: Client, fleet: Fleet) -> None:
    client.enqueue(call("before"))
    [first] = enqueues(fleet.store, "a")

    def interrupted() -> Iterator[ScriptCall[Any]]:
        yield first
        raise rota.TimeLimit

    with pytest.raises(rota.TimeLimit):
        exchange(client, interrupted())
    assert client.cancel("nobody") == "unknown"
    assert client.enqueue(call("after")).id == "after"


def test_if_the_connection_is_lost_between_commands_none_counts_as_replied(client: Client, fleet: Fleet) -> None:
    client.enqueue(call("before"))
    first, second, third = enqueues(fleet.store, "a", "b", "c")
    with borrowed(client._driver.pool) as connection:
        sock = connection._connection._socket

    def cut_after_the_first() -> Iterator[ScriptCall[Any]]:
        yield first
        sock.shutdown(socket.SHUT_RDWR)
        yield second
        yield third

    answers = exchange(client, cut_after_the_first())
    assert [type(answer) for answer in answers] == [NotReplied] * 3
    assert [type(answer) for answer in exchange(client, [first, second, third])] == [Replied] * 3
    assert sorted(fleet.lane()) == ["a", "b", "before", "c"]


def test_a_late_reply_is_not_taken_for_the_reply_of_a_script_load(
    client: Client, fleet: Fleet, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    client.enqueue(call("before"))
    redis_client.script_flush()
    first, second = enqueues(fleet.store, "a", "b")
    with borrowed(client._driver.pool) as connection:
        send = connection.send

    def late_after_the_first() -> Iterator[ScriptCall[Any]]:
        yield first
        select.select([connection], [], [])
        redis_client.client_pause(PAUSE_MS)
        yield second

    def sent_when_the_late_answer_is_there(data: bytes) -> None:
        if b"EVALSHA" not in data:
            select.select([connection], [], [])
        send(data)

    monkeypatch.setattr(connection, "send", sent_when_the_late_answer_is_there)
    short = Exchange(late_after_the_first(), None, time.monotonic() + PAUSE_MS / 3000)
    assert [type(answer) for answer in client._driver.pool.exchange(short)] == [NotReplied] * 2
    assert [type(answer) for answer in exchange(client, [first, second])] == [Replied] * 2
    assert fleet.lane() == ["before", "a", "b"]


def test_closing_the_client_between_two_commands_mixes_up_no_replies(client: Client, fleet: Fleet) -> None:
    client.enqueue(call("before"))
    first, second, third = enqueues(fleet.store, "a", "b", "c")

    def closed_after_the_first() -> Iterator[ScriptCall[Any]]:
        yield first
        client.close()
        yield second
        yield third

    answers = exchange(client, closed_after_the_first())
    assert [type(answer) for answer in answers] == [NotReplied] * 3
    assert [type(answer) for answer in exchange(client, [first, second, third])] == [Replied] * 3
    assert sorted(fleet.lane()) == ["a", "b", "before", "c"]


def test_enqueue_many_recovers_from_a_connection_lost_between_batches(
    client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.enqueue(call("before"))
    with borrowed(client._driver.pool) as connection:
        send, sent = connection.send, []

    def breaking_at_the_second(data: bytes) -> None:
        sent.append(data)
        if len(sent) == 2:
            connection._connection._socket.shutdown(socket.SHUT_RDWR)
        send(data)

    monkeypatch.setattr(connection, "send", breaking_at_the_second)
    ids = [f"t-{number}" for number in range(BATCH)]
    handles = client.enqueue_many(map(call, ids))
    assert [(handle.id, handle.duplicate) for handle in handles] == [(task_id, False) for task_id in ids]
    assert sorted(fleet.lane()) == sorted(["before", *ids])


# URLs that could be read in two ways


def client_info(address: Address) -> dict[str, str]:
    connection = Connection(address)
    info = connection.execute("CLIENT", "INFO")
    connection.close()
    return fields(info)


def fields(info: bytes) -> dict[str, str]:
    return dict(field.split("=", 1) for field in info.decode().split())


@pytest.mark.parametrize(("user", "credentials"), [("default", ""), ("open", "open@"), ("worker", "worker:s%40crt@")])
def test_client_and_fleet_parse_a_url_the_same_way(
    user: str, credentials: str, server: Server, redis_client: "redis.Redis"
) -> None:
    redis_client.acl_setuser("worker", enabled=True, passwords=["+s@crt"], commands=["+@all"], keys=["*"])
    redis_client.acl_setuser("open", enabled=True, nopass=True, commands=["+@all"], keys=["*"])
    tcp = server.url.replace("redis://", f"redis://{credentials}").rpartition("/")[0] + "/3"
    for url in (tcp, f"unix://{credentials}{server.socket_path}?db=3"):
        ours = client_info(parse_address(url))
        pool = ClientPool(UrlEndpoint(url, NO_ACCESS, "{x}:tasks"), 5.0)
        with borrowed(pool) as connection:
            theirs = fields(connection.execute(command((pack(("CLIENT", "INFO")),))))
        pool.close()
        assert (ours["db"], ours["user"]) == (theirs["db"], theirs["user"]) == ("3", user)
