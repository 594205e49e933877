"""Connections to real servers, to a silent server, to an address without a server, and to an address at which another
program listens.
"""

import asyncio
import dataclasses
import hashlib
import itertools
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import rota
from rota.protocol.scripts import Script, ScriptCall
from rota.protocol.wire import command, pack
from rota.server.address import Address, parse_address
from rota.server.connection import (
    DEFAULT_OPTIONS,
    GRACE_SECONDS,
    PARK_SECONDS,
    Connection,
    ConnectionOptions,
    wait_for,
)
from rota.server.logins import Login
from rota.server.server_errors import ConnectionLost, PushedBack, Refused
from rota.server.session import NO_REPLY
from support.servers import Server, free_port, server_binaries

Redis = redis.Redis
ECHO_TEXT = b"#!lua\nreturn {KEYS[1], ARGV[1]}"


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record every connection that the test opens, and close all of them afterwards."""
    made: list[Connection] = []
    greet = Connection._greet

    def record_and_greet(connection: Connection, address: Address, login: Login) -> None:
        made.append(connection)
        greet(connection, address, login)

    monkeypatch.setattr(Connection, "_greet", record_and_greet)
    yield
    for connection in made:
        connection.close()


def _echo(text: bytes, argument: str) -> ScriptCall[Any]:
    sha = hashlib.sha1(text).hexdigest().encode()
    return ScriptCall(Script("echo", text, sha), ("{x}:k",), pack((argument,)), list)


def test_an_unknown_script_is_sent_as_text_once(server: Server, redis_client: Redis) -> None:
    redis_client.script_flush()
    redis_client.config_resetstat()
    connection = Connection(parse_address(server.url))
    assert connection.run(_echo(ECHO_TEXT, "a")) == [b"{x}:k", b"a"]
    assert connection.run(_echo(ECHO_TEXT, "b")) == [b"{x}:k", b"b"]
    stats = redis_client.info("commandstats")
    assert stats["cmdstat_eval"]["calls"] == 1


def test_a_connection_supports_unix_sockets_databases_and_client_names(server: Server) -> None:
    connection = Connection(Address(path=server.socket_path, database=3), ConnectionOptions(name="rota:test"))
    assert b"name=rota:test" in connection.execute("CLIENT", "INFO")
    assert b"db=3" in connection.execute("CLIENT", "INFO")


def test_a_password_is_used_and_a_wrong_password_is_refused(server: Server, redis_client: Redis) -> None:
    redis_client.acl_setuser("worker", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
    address = dataclasses.replace(parse_address(server.url), username="worker", password="secret")
    connection = Connection(address)
    assert connection.execute("ACL", "WHOAMI") == b"worker"
    with pytest.raises(Refused, match="WRONGPASS"):
        Connection(dataclasses.replace(address, password="guess"))


def test_a_refused_client_name_is_ignored(server: Server, redis_client: Redis) -> None:
    redis_client.acl_setuser(
        "nameless", enabled=True, passwords=["+secret"], commands=["+@all", "-client|setname"], keys=["*"]
    )
    connection = Connection(dataclasses.replace(parse_address(server.url), username="nameless", password="secret"))
    assert connection.execute("ECHO", "a") == b"a"


def test_a_reply_of_many_megabytes_arrives_whole(server: Server) -> None:
    connection = Connection(parse_address(server.url))
    payload = b"x" * (20 << 20)
    connection.execute("SET", "big", payload)
    assert connection.execute("GET", "big") == payload
    connection.execute("DEL", "big")


def test_a_blocking_command_does_not_block_the_caller(server: Server, redis_client: Redis) -> None:
    connection = Connection(parse_address(server.url))
    connection.send(command((pack(("BLPOP", "bell", 10)),)))
    assert connection.try_receive() is NO_REPLY
    redis_client.rpush("bell", "1")
    assert connection.receive() == [b"bell", b"1"]


def test_a_call_on_a_cut_connection_is_lost_and_not_repeated(server: Server, redis_client: Redis) -> None:
    connection = Connection(parse_address(server.url))
    redis_client.client_kill_filter(_id=connection.execute("CLIENT", "ID"))
    with pytest.raises(ConnectionLost):
        connection.execute("INCR", "counted")
    assert redis_client.get("counted") is None


def _fill(connection: Connection) -> None:
    for _ in range(100):
        connection.execute("RPUSH", "fill", b"x" * 100_000)


def test_a_server_without_memory_refuses_commands_and_keeps_the_connection(tmp_path: Path) -> None:
    full = Server(server_binaries()["valkey"], tmp_path, maxmemory="1mb").start()
    try:
        connection = Connection(parse_address(full.url))
        with pytest.raises(PushedBack) as caught:
            _fill(connection)
        assert caught.value.reason == "oom"
        assert connection.execute("PING") == b"PONG"
    finally:
        full.stop()


@contextmanager
def _listener(answer: Callable[[socket.socket], None]) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                answer(accepted)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address(port=listening.getsockname()[1])
        thread.join()


def test_a_connection_to_a_silent_server_counts_as_lost_after_the_deadline() -> None:
    done = threading.Event()
    with _listener(lambda _accepted: _ignore(done.wait(20))) as address:
        before = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
            Connection(address, ConnectionOptions(read_seconds=0.2))
        assert time.monotonic() - before < 10
        done.set()


def test_a_silent_tls_handshake_times_out_and_uses_the_given_wait() -> None:
    done = threading.Event()
    waited: list[float] = []

    def wait(fd: int, events: int, seconds: float) -> bool:
        waited.append(seconds)
        return wait_for(fd, events, seconds)

    with _listener(lambda _accepted: _ignore(done.wait(20))) as address:
        secure = dataclasses.replace(address, tls=True)
        with pytest.raises(ConnectionLost, match=r"no TLS handshake within 0\.2 s"):
            Connection(secure, ConnectionOptions(connect_seconds=0.2, wait=wait))
        done.set()
    assert waited
    assert max(waited) <= 0.2


@pytest.fixture
def secure_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """Yield the address of a Redis with TLS. This process trusts its certificate."""
    binary = server_binaries().get("redis")
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("TLS needs a redis-server and openssl on the PATH")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([*request.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    port = free_port()
    files = {"tls_cert_file": str(certificate), "tls_key_file": str(key), "tls_auth_clients": "no"}
    secured = Server(binary, tmp_path, tls_port=str(port), **files).start()
    yield Address(host="localhost", port=port, tls=True)
    secured.stop()


def test_tls_requires_a_trusted_certificate(secure_server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(secure_server)
    payload = b"x" * (1 << 20)
    assert connection.execute("ECHO", payload) == payload
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ConnectionLost, match=r"not accepted .*redis_tls_ca"):
        Connection(secure_server)


def test_clients_use_tls_and_verify_certificate_and_host(
    secure_server: Address, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"rediss://localhost:{secure_server.port}"

    async def program(task_id: str) -> None:
        async with rota.AsyncClient(url, namespace) as client:
            await client.enqueue("work", queue="q", id=task_id)
            with pytest.raises(rota.WaitTimeout):
                await client.wait(task_id, timeout=0.1)

    asyncio.run(program("a"))
    with rota.Client(url, namespace) as client:
        assert client.enqueue("work", queue="q", id="a").duplicate
        another_name = rota.Client(url.replace("localhost", "127.0.0.1"), namespace)
        with another_name, pytest.raises(rota.Unavailable, match="IP address mismatch"):
            another_name.enqueue("work", queue="q", id="b")
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(rota.Unavailable, match=r"not accepted .*redis_tls_ca"):
            asyncio.run(program("b"))
        with (
            rota.Client(url, namespace) as other,
            pytest.raises(rota.Unavailable, match=r"not accepted .*redis_tls_ca"),
        ):
            other.enqueue("work", queue="q", id="b")
        assert client.status("b").state == "unknown"


def test_borrowed_clients_use_their_own_tls_settings(secure_server: Address, namespace: str) -> None:
    own = redis.Redis(host="localhost", port=secure_server.port, ssl=True)

    async def program() -> bool:
        aown = redis.asyncio.Redis(host="localhost", port=secure_server.port, ssl=True)
        async with rota.AsyncClient(redis=aown, namespace=namespace) as client:
            handle = await client.enqueue("work", queue="q", id="a")
            with pytest.raises(rota.WaitTimeout):
                await handle.wait(timeout=0.1)
        await aown.aclose()
        return handle.duplicate

    with rota.Client(redis=own, namespace=namespace) as client:
        handles = client.enqueue_many(rota.Call("work", args=("x" * 100_000,), queue="q", id=each) for each in "abc")
        assert not handles[0].duplicate
        with pytest.raises(rota.WaitTimeout):
            handles[0].wait(timeout=0.1)
    assert asyncio.run(program())
    own.close()


def test_closing_a_tls_connection_sends_nothing_in_plain_text(
    secure_server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(secure_server)
    shutdown = socket.socket.shutdown
    secured: list[bool] = []

    def record_and_shut_down(self: ssl.SSLSocket, how: int) -> None:
        secured.append(self.cipher() is not None)  # whether data would be encrypted if it were sent now
        shutdown(self, how)

    monkeypatch.setattr(socket.socket, "shutdown", record_and_shut_down)
    connection.close(everywhere=True)
    assert secured == [True]
    with pytest.raises(ConnectionLost):
        connection.execute("PING")


def test_a_server_that_is_not_redis_is_reported() -> None:
    with (
        _listener(lambda accepted: accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address,
        pytest.raises(ConnectionLost, match="not RESP"),
    ):
        Connection(address)


def test_the_error_of_a_refused_connection_names_the_address(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1: Connection refused"):
        Connection(Address(port=1))
    with pytest.raises(ConnectionLost, match="nothing-here"):
        Connection(Address(path=str(tmp_path / "nothing-here")))


class _GivenUpError(Exception):
    pass


def test_a_wait_can_be_aborted_by_an_exception(server: Server) -> None:
    give_up = False

    def wait(fd: int, events: int, seconds: float) -> bool:
        if give_up:
            raise _GivenUpError
        return wait_for(fd, events, seconds)

    connection = Connection(parse_address(server.url), dataclasses.replace(DEFAULT_OPTIONS, wait=wait))
    give_up = True
    with pytest.raises(_GivenUpError):
        connection.execute("BLPOP", "never", 5)


def _ignore(_value: object) -> None:
    return None


def test_keepalive_detects_a_dead_path_before_a_blocked_command_times_out(server: Server) -> None:
    connection = Connection(parse_address(server.url))
    asked = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
    idle, between, unconfirmed_ms = (connection._socket.getsockopt(socket.IPPROTO_TCP, each) for each in asked)
    probes = (idle + between * number for number in itertools.count())
    assert next(seconds for seconds in probes if seconds * 1000 > unconfirmed_ms > 0) <= PARK_SECONDS + GRACE_SECONDS
