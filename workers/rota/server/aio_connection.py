"""The asyncio connection to the server, for a process that must never block: what is said on it is that of `session`.

One command at a time, in the order of the callers. A connection that broke is made anew by the next command.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rota.protocol.command import Command
from rota.protocol.wire import Arg, command, pack
from rota.server import server_errors as errors
from rota.server.address import Address
from rota.server.sentinel import PRIMARY_SECONDS, SENTINEL_SECONDS, Question, search
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError
from rota.server.session import NO_REPLY, READ_BYTES, Session, greeting, tls_context

T = TypeVar("T")

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
Found = list[str] | OSError
FIRST_RETRY_SECONDS: Final = 0.05  # for the back-off of callers that repeat
MOST_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionWatch:
    """Callbacks: `up` after a command that went through, `down` with each error, `asked` before each command."""

    up: Callable[[], None] = lambda: None
    down: Callable[[ServerError], None] = lambda _error: None
    asked: Callable[[], None] = lambda: None


class AioConnection:
    """One connection, made when it is first needed and again after it broke."""

    def __init__(
        self,
        address: Address,
        name: str,
        seconds: Callable[[], float] = lambda: 5.0,
        watch: ConnectionWatch | None = None,
    ) -> None:
        """`seconds`: how long an answer may take, and a connection too; a search for the primary has its own bound."""
        self._address = address
        self._name = name
        self._seconds = seconds
        self._watch = watch or ConnectionWatch()
        self._lock = asyncio.Lock()
        self._resolver = Resolver()
        self._session = Session()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self._streams is not None

    async def run(self, call: Command[T]) -> T:
        """Run a script once and parse its answer. Raises ServerError."""
        try:
            raw = await self._watched(call.by_sha())
        except errors.UnknownScript:
            raw = await self._watched(call.by_text())
        return errors.read_reply(call, raw)

    async def execute(self, *args: Arg) -> Any:
        """Run a plain command; the reply as hiredis reads it. Raises ServerError."""
        return await self._watched(command((pack(args),)))

    async def close(self) -> None:
        """Close at once. May be repeated; the next command connects again."""
        self._drop()

    async def _watched(self, data: bytes) -> Any:
        try:
            async with self._lock:
                self._watch.asked()
                reply = await self._ask(data)
        except errors.UnknownScript:
            raise
        except ServerError as error:
            self._watch.down(error)
            raise
        self._watch.up()
        return reply

    async def _ask(self, data: bytes) -> Any:
        sentinels = self._address.sentinels
        try:
            if self._streams is None and sentinels is not None:
                # A sentinel that is silent costs its own step and no more, however short the patience with the server
                # is: the next search begins with it again, so one bound for all would never let it be passed over.
                seconds = len(sentinels.places) * (SENTINEL_SECONDS + PRIMARY_SECONDS)
                await _within(seconds, self._connect(self._open_primary()))
            return await _within(self._seconds(), self._connect_and_exchange(data))
        except OSError as error:
            self._drop()
            raise ConnectionLost(f"no connection to {self._address.place}: {error}", REASON_NETWORK) from error
        except (ConnectionLost, asyncio.CancelledError):  # a reply may still come and must not answer the next command
            self._drop()
            raise

    async def _connect_and_exchange(self, data: bytes) -> Any:
        if self._streams is None:
            await self._connect(self._open(self._address))
        return await self._exchange(data)

    async def _connect(self, opening: Awaitable[None]) -> None:
        try:
            await opening
        except BaseException:  # whatever it was: a connection half greeted is none
            self._drop()
            raise

    async def _open_primary(self) -> None:
        searching = search(self._address)
        question = next(searching)
        while True:
            answer = await self._ask_once(question)
            try:
                question = searching.send(answer)
            except StopIteration:  # that was the primary: this connection stays
                return
            self._drop()

    async def _ask_once(self, question: Question) -> Any:
        try:
            async with asyncio.timeout(question.seconds):
                await self._open(question.address)
                return await self._exchange(command((pack(question.args),)))
        except TimeoutError:
            return ConnectionLost(f"it took longer than {question.seconds:g} s", REASON_SILENT)
        except OSError as error:
            return ConnectionLost(f"no connection: {error.strerror or error}", REASON_NETWORK)
        except ServerError as error:
            return error

    async def _open(self, address: Address) -> None:
        self._session = Session()
        if address.path:
            self._streams = await asyncio.open_unix_connection(address.path)
        else:
            self._streams = await self._open_tcp(address)
        commands = greeting(address, self._name)
        for each in commands[:-1]:
            await self._exchange(each)
        with contextlib.suppress(errors.Refused):
            await self._exchange(commands[-1])

    async def _open_tcp(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = tls_context() if address.tls else None
        failed: OSError = OSError("its name has no address")
        for each in await self._resolver.addresses_of(address.host):
            try:
                called = address.host if address.tls else None
                return await asyncio.open_connection(each, address.port, ssl=secure, server_hostname=called)
            except OSError as error:
                failed = error
        raise failed

    async def _exchange(self, data: bytes) -> Any:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(data)
        await writer.drain()
        while (reply := self._session.reply()) is NO_REPLY:
            self._session.take(await reader.read(READ_BYTES))
        return reply

    def _drop(self) -> None:
        if self._streams is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._streams[1].close()
            self._streams = None


async def _within(seconds: float, step: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await step
    except TimeoutError as error:
        raise ConnectionLost(f"the server took longer than {seconds:g} s", REASON_SILENT) from error


class Resolver:
    """Looks up names in threads that nobody waits for at the end.

    asyncio's own lookup runs in the loop's default executor, which `asyncio.run` joins: a resolver that hung for 20 s
    held a master's TERM for as long, beyond every deadline. Whoever asks for a name that is being looked up waits for
    the same answer, so a resolver that hangs takes one thread a name, however often it is asked again.
    """

    def __init__(self) -> None:
        self._going: dict[str, asyncio.Future[Found]] = {}

    async def addresses_of(self, host: str) -> list[str]:
        """The addresses of a host, the best first; its own text when that is one. Raises OSError."""
        if _is_address(host):
            return [host]
        going = self._going.get(host) or self._begin(host)
        found = await asyncio.shield(going)  # whoever gives up leaves it to the others
        if isinstance(found, OSError):
            raise found
        return found

    def _begin(self, host: str) -> "asyncio.Future[Found]":
        loop = asyncio.get_running_loop()

        def look_up() -> None:
            found = _look_up(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._end, host, found)

        try:
            threading.Thread(target=look_up, daemon=True, name="rota-resolver").start()
        except RuntimeError as error:  # there may be no further thread now
            raise OSError(str(error)) from error
        self._going[host] = going = loop.create_future()
        return going

    def _end(self, host: str, found: Found) -> None:
        going = self._going.pop(host)
        if not going.done():
            going.set_result(found)


def _look_up(host: str) -> Found:
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)))
    except OSError as error:
        return error
    except UnicodeError as error:  # a label that is empty or too long
        return OSError(f"{host!r} is no host name: {error}")


def _is_address(host: str) -> bool:
    for family in _FAMILIES:
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False
