"""The master's asyncio connection to real servers, and to servers that misbehave."""

import asyncio
import contextlib
import dataclasses
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rota.protocol.store import Store
from rota.server.address import Address, parse_address
from rota.server.aio_connection import AioConnection, ConnectionWatch, Opener
from rota.server.server_errors import ConnectionLost, PushedBack, Refused, ServerError
from support.servers import Server, free_port

T = TypeVar("T")


def _with(address: Address, use: Callable[[AioConnection], Awaitable[T]], watch: ConnectionWatch | None = None) -> T:
    async def main() -> T:
        connection = AioConnection(Opener(address, "rota:test"), watch=watch)
        try:
            return await use(connection)
        finally:
            await connection.close()

    return asyncio.run(main())


def test_an_unknown_script_is_sent_as_text_once(server: Server, namespace: str) -> None:
    store = Store(namespace)

    async def use(connection: AioConnection) -> list[str]:
        await connection.execute("SCRIPT", "FLUSH")
        return [
            *await connection.run(store.register(1000, ["n:1"])),
            *await connection.run(store.register(1000, ["n:2"])),
        ]

    assert _with(parse_address(server.url), use) == ["n:1:1", "n:2:2"]


def test_a_refused_client_name_is_ignored(server: Server) -> None:
    async def use(connection: AioConnection) -> bytes:
        rules = ["on", ">secret", "+@all", "-client|setname", "~*"]
        await connection.execute("ACL", "SETUSER", "nameless", *rules)
        nameless = dataclasses.replace(parse_address(server.url), username="nameless", password="secret")
        other = AioConnection(Opener(nameless, "rota:other"))
        answer: bytes = await other.execute("ECHO", "a")
        await other.close()
        return answer

    assert _with(parse_address(server.url), use) == b"a"


def test_many_callers_get_their_own_replies(server: Server) -> None:
    async def use(connection: AioConnection) -> list[bytes]:
        answers = await asyncio.gather(*(connection.execute("ECHO", str(number)) for number in range(50)))
        return list(answers)

    assert _with(parse_address(server.url), use) == [str(number).encode() for number in range(50)]


def test_a_cut_connection_raises_and_the_next_command_reconnects(server: Server) -> None:
    told: list[str] = []
    watch = ConnectionWatch(lambda: told.append("up"), lambda error: told.append(error.reason))

    async def use(connection: AioConnection) -> bytes:
        own = await connection.execute("CLIENT", "ID")
        other = AioConnection(Opener(parse_address(server.url), "rota:other"))
        await other.execute("CLIENT", "KILL", "ID", own)
        await other.close()
        with pytest.raises(ConnectionLost):
            await connection.execute("PING")
        pong: bytes = await connection.execute("PING")
        return pong

    assert _with(parse_address(server.url), use, watch) == b"PONG"
    assert told == ["up", "network", "up"]


def test_a_connection_stays_usable_after_the_server_refused_a_command(server: Server, namespace: str) -> None:
    async def use(connection: AioConnection) -> bytes:
        await connection.execute("SET", namespace, "text")
        with pytest.raises(Refused, match="WRONGTYPE"):
            await connection.execute("LPUSH", namespace, "x")
        found: bytes = await connection.execute("GET", namespace)
        return found

    assert _with(parse_address(server.url), use) == b"text"


def test_the_reply_to_a_cancelled_command_is_discarded(server: Server) -> None:
    async def use(connection: AioConnection) -> bytes:
        parked = asyncio.create_task(connection.execute("BLPOP", "nothing-here", "2"))
        while not connection.is_connected:
            await asyncio.sleep(0)
        parked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await parked
        said: bytes = await connection.execute("ECHO", "mine")
        return said

    assert _with(parse_address(server.url), use) == b"mine"


def test_connecting_to_a_silent_server_times_out() -> None:
    async def main() -> None:
        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            await writer.wait_closed()
            swallowed.set()

        swallowed = asyncio.Event()

        silent = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        connection = AioConnection(Opener(Address(port=port), "rota:test"), lambda: 0.2)
        with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
            await connection.execute("PING")
        await swallowed.wait()
        silent.close()

    asyncio.run(main())


def test_a_server_that_replies_within_each_timeout_can_be_used() -> None:
    # Each reply arrives within this timeout, but the replies to the greeting and to the command together take longer.
    patience_seconds, answer_seconds = 2.0, 1.2

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            await asyncio.sleep(answer_seconds)
            writer.write(b"+OK\r\n")
        writer.close()
        await writer.wait_closed()
        over.set()

    over = asyncio.Event()

    async def main() -> bytes:
        slow = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = slow.sockets[0].getsockname()[1]
        connection = AioConnection(Opener(Address(port=port), "rota:test"), lambda: patience_seconds)
        said: bytes = await connection.execute("PING")
        await connection.close()
        await over.wait()
        slow.close()
        return said

    assert asyncio.run(main()) == b"OK"


def test_each_command_has_its_own_timeout(server: Server) -> None:
    patience = 5.0

    async def main() -> None:
        nonlocal patience
        connection = AioConnection(Opener(parse_address(server.url), "rota:test"), lambda: patience)
        await connection.execute("PING")
        patience = 0.2
        with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
            await connection.execute("BLPOP", "nothing-here", "20")
        await connection.close()

    asyncio.run(main())


def test_without_a_server_the_error_names_the_address() -> None:
    port = free_port()

    async def use(connection: AioConnection) -> None:
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
            await connection.execute("PING")

    _with(Address(port=port), use)


def test_a_server_can_be_given_by_host_name(server: Server) -> None:
    async def use(connection: AioConnection) -> bytes:
        answer: bytes = await connection.execute("ECHO", "a")
        return answer

    assert _with(dataclasses.replace(parse_address(server.url), host="localhost"), use) == b"a"


@pytest.mark.parametrize("name", ["no.invalid", "a..b"], ids=["unknown", "impossible"])
def test_an_unresolvable_host_name_is_a_lost_connection(name: str) -> None:
    async def use(connection: AioConnection) -> None:
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=f"no connection to {name}:"):
                await connection.execute("PING")

    _with(Address(host=name), use)


def test_a_hanging_resolver_uses_one_thread_and_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Semaphore(0), threading.Event()

    def hang(*_args: object, **_more: object) -> list[object]:
        asked.release()
        go_on.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    async def main() -> None:
        connection = AioConnection(Opener(Address(host="redis.example"), "rota:test"), lambda: 0.1)
        for _ in range(3):
            with pytest.raises(ConnectionLost, match="did not reply within"):
                await connection.execute("PING")

    ending = threading.Thread(target=asyncio.run, args=(main(),))
    ending.start()
    ending.join(30)
    try:
        assert not ending.is_alive()
        assert asked.acquire(timeout=0)
        assert not asked.acquire(blocking=False)
    finally:
        go_on.set()


def test_password_database_and_unix_socket_are_used(server: Server, tmp_path: Path) -> None:
    guarded = Server(server.binary, tmp_path).start()

    async def lock(connection: AioConnection) -> None:
        await connection.execute("CONFIG", "SET", "requirepass", "secret")

    async def use(connection: AioConnection) -> bytes:
        info: bytes = await connection.execute("CLIENT", "INFO")
        return info

    async def refused(connection: AioConnection) -> ServerError:
        with pytest.raises(ServerError) as caught:
            await connection.execute("PING")
        return caught.value

    try:
        _with(Address(port=guarded.port), lock)
        info = _with(Address(path=guarded.socket_path, password="secret", database=3), use)
        assert b"db=3" in info
        assert b"name=rota:test" in info
        wrong = _with(Address(port=guarded.port, password="guess"), refused)
        assert isinstance(wrong, Refused)
        assert not isinstance(wrong, PushedBack)
    finally:
        guarded.stop()
