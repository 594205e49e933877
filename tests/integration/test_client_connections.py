"""The client's connections: whose answers they carry, where they go, and how much goes over one at a time."""

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import redis

import rota
from protocol import Fleet
from rota.client import Client
from rota.pool import Answer, Pool
from rota.protocol.store import Command
from rota.server.address import DEFAULT_PORT, Address, parse_address
from rota.server.connection import Connection
from servers import Server

T = TypeVar("T")
PAUSE_MS = 300
MIB = 1 << 20


def call(task_id: str) -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


@contextmanager
def borrowed(pool: Pool) -> Iterator[Any]:
    """The connection that the next exchange uses, on which anything may be done."""
    connection = pool._take()
    yield connection
    pool._kept.append(connection)


@pytest.mark.parametrize("warm", [True, False], ids=["waiting for the answer", "being greeted"])
def test_an_interrupted_connection_gives_its_answers_to_nobody(
    warm: bool, client: Client, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    if warm:
        client.enqueue(call("before"))

    def interrupted(*_: object, **__: object) -> object:
        raise rota.TimeLimit

    redis_client.client_pause(PAUSE_MS)  # so that the answers come when the connection could be in use again
    monkeypatch.setattr(redis.Connection, "read_response", interrupted)
    with pytest.raises(rota.TimeLimit):
        client.enqueue(call("interrupted"))
    monkeypatch.undo()
    assert client.cancel("nobody") == "unknown"
    assert client.enqueue(call("after")).id == "after"
    assert client.status("after").state == "ready"


def test_an_answer_left_unread_is_noticed_before_the_connection_is_used_again(client: Client) -> None:
    client.enqueue(call("a"))
    with borrowed(client._pool) as connection:
        connection.send_command("PING")
        select.select([connection._sock], [], [])
    assert client.enqueue(call("a")).duplicate


def connections_of_clients(redis_client: "redis.Redis") -> list[str]:
    """Ids of the connections that have run a script."""
    return [each["id"] for each in redis_client.client_list() if "eval" in each["cmd"]]


def test_calls_one_after_another_share_one_connection(client: Client, redis_client: "redis.Redis") -> None:
    before = set(connections_of_clients(redis_client))
    for number in range(20):
        client.enqueue(call(f"t-{number}"))
    assert len(set(connections_of_clients(redis_client)) - before) == 1


def test_a_connection_the_server_closed_is_replaced_before_anything_is_sent(
    client: Client, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    client.enqueue(call("a"))
    with borrowed(client._pool) as connection:
        connection.send_command("CLIENT", "ID")
        redis_client.client_kill_filter(_id=connection.read_response())
        select.select([connection._sock], [], [])
    sent: list[Sequence[bytes]] = []
    send = redis.Connection.send_packed_command

    def noting(self: redis.Connection, command: Any, check_health: bool = True) -> None:
        sent.append(command)
        send(self, command, check_health)  # type: ignore[no-untyped-call]  # redis-py does not type it

    monkeypatch.setattr(redis.Connection, "send_packed_command", noting)
    assert not client.enqueue(call("b")).duplicate
    assert len([data for data in sent if b"EVALSHA" in b"".join(data)]) == 1


def test_a_closed_client_keeps_no_connection_and_may_be_used_again(client: Client, redis_client: "redis.Redis") -> None:
    before = set(connections_of_clients(redis_client))
    client.enqueue(call("a"))
    client.close()
    assert set(connections_of_clients(redis_client)) - before == set()
    assert client.enqueue(call("a")).duplicate


def test_a_round_of_many_large_tasks_is_bounded(
    client: Client, server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    exchange = client._pool.exchange

    def weighed(commands: Sequence[Command[T]]) -> list[Answer[T]]:
        sizes.append(sum(len(command.by_sha()) for command in commands))
        return exchange(commands)

    monkeypatch.setattr(client._pool, "exchange", weighed)
    handles = client.enqueue_many(rota.Call("work", ["x" * 200_000], queue="q") for _ in range(50))
    fleet = Fleet(server, namespace)
    assert fleet.lane() == [handle.id for handle in handles]
    fleet.close()
    assert sum(sizes) > 9 * MIB
    assert max(sizes) < 4.1 * MIB


# One URL, one meaning


def where(address: Address) -> dict[str, str]:
    connection = Connection(address)
    info = connection.execute("CLIENT", "INFO")
    connection.close()
    return fields(info)


def fields(info: bytes) -> dict[str, str]:
    return dict(field.split("=", 1) for field in info.decode().split())


@pytest.mark.parametrize(("user", "credentials"), [("default", ""), ("open", "open@"), ("worker", "worker:s%40crt@")])
def test_client_and_fleet_understand_a_url_alike(
    user: str, credentials: str, server: Server, redis_client: "redis.Redis"
) -> None:
    redis_client.acl_setuser("worker", enabled=True, passwords=["+s@crt"], commands=["+@all"], keys=["*"])
    redis_client.acl_setuser("open", enabled=True, nopass=True, commands=["+@all"], keys=["*"])
    tcp = server.url.replace("redis://", f"redis://{credentials}").rpartition("/")[0] + "/3"
    for url in (tcp, f"unix://{credentials}{server.socket_path}?db=3"):
        ours = where(parse_address(url))
        pool = Pool(url, 5.0)
        with borrowed(pool) as connection:
            connection.send_command("CLIENT", "INFO")
            theirs = fields(connection.read_response())
        pool.close()
        assert (ours["db"], ours["user"]) == (theirs["db"], theirs["user"]) == ("3", user)


def test_tls_checks_who_answers_by_the_systems_authorities() -> None:
    connection = Pool("rediss://shop.example", 5.0)._pool.make_connection()
    assert isinstance(connection, redis.SSLConnection)
    assert (connection.check_hostname, connection.ca_certs, connection.ca_path) == (True, None, None)


def test_timeouts_and_retries_are_ours() -> None:
    connection: Any = Pool("redis://localhost", 1.5)._pool.make_connection()
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (1.5, 1.5)
    assert connection.retry._retries == 0
    assert (connection.host, connection.port) == ("localhost", DEFAULT_PORT)
