"""Asyncio connections to the server: what is said on them is that of `session`.

An `AioConnection` is for a process that must never block. It sends one command at a time, in the order of the callers,
and is made again by the next command after it broke. An `Opener` makes the streams below it; its caller bounds the
time, except for a search of the primary, whose steps have bounds of their own.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from rota.protocol.command import Command
from rota.protocol.wire import Arg, command, pack
from rota.server import server_errors as errors
from rota.server.address import PRIMARY_SECONDS, SENTINEL_SECONDS, Address, Question, search
from rota.server.logins import Renewal
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError, TlsFault
from rota.server.session import NO_REPLY, READ_BYTES, Session, connection_fault, greeting, greeting_fault, tls_context

T = TypeVar("T")

FIRST_RETRY_SECONDS: Final = 0.05  # for the back-off of callers that repeat
MOST_RETRY_SECONDS: Final = 1.0
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
Found = list[str] | OSError


class AioStreams:
    """What is sent and received on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._session = Session()
        self.renewal: Renewal | None = None

    @property
    def is_to_renew(self) -> bool:
        """Whether to replace it, since the password that it was made with expires soon."""
        return self.renewal is not None and self.renewal.is_due

    async def ask(self, data: bytes) -> Any:
        """Send a command, and wait for its reply. Raises ServerError or OSError."""
        self.write(data)
        await self.drain()
        return await self.receive()

    def write(self, data: bytes) -> None:
        """Have it sent."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait while the server takes nothing. Raises OSError."""
        await self._writer.drain()

    async def receive(self) -> Any:
        """Wait for the next reply. Raises ServerError, error replies too, or OSError."""
        while (reply := self._session.reply()) is NO_REPLY:
            self._session.take(await self._reader.read(READ_BYTES))
        return reply

    def close(self) -> None:
        """Close at once. May be repeated."""
        with contextlib.suppress(RuntimeError):  # the loop is closing
            if self._writer.get_extra_info("sslcontext") is None:
                self._writer.close()
            else:
                self._writer.transport.abort()  # it would wait for the server's goodbye, which may never come


class StreamOpener(Protocol):
    """An opener of connections over asyncio."""

    @property
    def place(self) -> str:
        """The server in error messages."""
        ...

    def patience(self, seconds: float) -> float:
        """Return how long opening a connection may take when an answer may take so many seconds."""
        ...

    async def open(self) -> AioStreams:
        """Return a connection that was greeted. Raises ServerError or OSError."""
        ...


class Opener:
    """Opens connections to a server, or to the primary that its sentinels name."""

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._name = name
        self._resolver = Resolver()
        self.place = address.place

    def patience(self, seconds: float) -> float:
        """Return how long a connection may take: a bound of its own, since a link whose answers all come in time might
        else never be connected over."""
        sentinels = self._address.sentinels
        if sentinels is None:
            return seconds
        # A sentinel that is silent costs its own step and no more, however short the patience with the server
        # is: the next search begins with it again, so one bound for all would never let it be passed over.
        return len(sentinels.places) * (SENTINEL_SECONDS + PRIMARY_SECONDS)

    async def open(self) -> AioStreams:
        """Return a connection that was greeted. Raises ServerError or OSError."""
        try:
            return await self._open_primary()
        except ServerError as error:
            if not self._address.has_other_login(error):
                raise
        return await self._open_primary()

    async def _open_primary(self) -> AioStreams:
        if self._address.sentinels is None:
            return await self._open(self._address)
        searching = search(self._address)
        question = next(searching)
        while True:
            streams, answer = await self._ask_once(question)
            try:
                question = searching.send(answer)
            except StopIteration:  # that was the primary: this connection stays
                assert streams is not None
                return streams
            except BaseException:
                _close(streams)
                raise
            _close(streams)

    async def _ask_once(self, question: Question) -> tuple[AioStreams | None, Any]:
        streams = None
        try:
            async with asyncio.timeout(question.seconds):
                streams = await self._open(question.address)
                return streams, await streams.ask(command((pack(question.args),)))
        except TimeoutError:
            return streams, ConnectionLost(f"it took longer than {question.seconds:g} s", REASON_SILENT)
        except OSError as error:
            return streams, ConnectionLost(f"no connection: {error.strerror or error}", REASON_NETWORK)
        except ServerError as error:
            return streams, error
        except BaseException:
            _close(streams)
            raise

    async def _open(self, address: Address) -> AioStreams:
        try:
            streams = await self._connect(address)
        except OSError as error:
            fault = connection_fault(f"no connection to {address.place}", error)
            raise (fault if isinstance(fault, TlsFault) else error) from error
        try:
            await self._greet(streams, address)
        except OSError as error:
            streams.close()
            raise greeting_fault(connection_fault("the connection broke", error), address) from error
        except ConnectionLost as error:
            streams.close()
            raise greeting_fault(error, address) from error
        except BaseException:  # whatever it was: a connection half greeted is none
            streams.close()
            raise
        return streams

    async def _connect(self, address: Address) -> AioStreams:
        if address.path:
            return AioStreams(*await asyncio.open_unix_connection(address.path))
        return AioStreams(*await self._open_tcp(address))

    async def _greet(self, streams: AioStreams, address: Address) -> None:
        login = address.kept_login
        if login is None:
            login = await asyncio.to_thread(address.login)
        *first, name = greeting(address, login, self._name)
        for each in first:
            await streams.ask(each)
        with contextlib.suppress(errors.Refused):
            await streams.ask(name)
        streams.renewal = address.renewal_of(login)

    async def _open_tcp(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = tls_context(address.tls_files) if address.tls else None
        failed: OSError = OSError("its name has no address")
        for each in await self._resolver.addresses_of(address.host):
            try:
                called = address.host if address.tls else None
                return await asyncio.open_connection(each, address.port, ssl=secure, server_hostname=called)
            except OSError as error:
                failed = error
        raise failed


def _close(streams: AioStreams | None) -> None:
    if streams is not None:
        streams.close()


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
        opener: StreamOpener,
        seconds: Callable[[], float] = lambda: 5.0,
        watch: ConnectionWatch | None = None,
    ) -> None:
        """`seconds`: how long an answer may take, and a connection too; a search for the primary has its own bound."""
        self._opener = opener
        self._seconds = seconds
        self._watch = watch or ConnectionWatch()
        self._lock = asyncio.Lock()
        self._streams: AioStreams | None = None

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
        return await self.ask(command((pack(args),)))

    async def ask(self, data: bytes) -> Any:
        """Run a command in wire form; the reply as hiredis reads it. Raises ServerError."""
        return await self._watched(data)

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
        if self._streams is not None and self._streams.is_to_renew:
            self._drop()
        try:
            if self._streams is None:
                self._streams = await _within(self._opener.patience(self._seconds()), self._opener.open())
            return await _within(self._seconds(), self._streams.ask(data))
        except OSError as error:
            self._drop()
            raise ConnectionLost(f"no connection to {self._opener.place}: {error}", REASON_NETWORK) from error
        except (ConnectionLost, asyncio.CancelledError):  # a reply may still come and must not answer the next command
            self._drop()
            raise

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams.close()
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
