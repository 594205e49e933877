"""Asyncio connections to the server. Their commands and replies are defined in `session`.

An `AioStream` is one open connection. Many callers can wait for replies on one stream, because replies arrive in the
order of the commands. The connection pool of an asyncio client uses such streams. An `AioConnection` is for a process
that must never block: it sends one command at a time, in the order of its callers. If its stream breaks, the next
command opens another one. An `Opener` opens streams. Its caller limits how long this may take. In a search for the
primary, each step has its own limit instead.
"""

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from rota.protocol.scripts import ScriptCall
from rota.protocol.wire import Arg, command, pack
from rota.server import server_errors as errors
from rota.server.address import Address
from rota.server.logins import Renewal
from rota.server.primary_search import Query, search
from rota.server.server_errors import REASON_NETWORK, REASON_PROTOCOL, REASON_SILENT, ConnectionLost, ServerError
from rota.server.session import NO_REPLY, Session, connection_fault, greeting, greeting_fault, tls_context

T = TypeVar("T")

FIRST_RETRY_SECONDS: Final = 0.05  # the first delay with which callers repeat a command; later delays are longer
MOST_RETRY_SECONDS: Final = 1.0
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
Found = list[str] | OSError


class AioStream(asyncio.Protocol):
    """One open connection. Each command has a future, whose result is the reply or an error.

    If a caller stops waiting, its reply is discarded when it arrives, and other callers are not affected. A retired
    stream accepts no more commands. Later commands use a new stream, while replies to earlier commands may still arrive
    on the retired stream.
    """

    def __init__(self) -> None:
        """Create the stream. The event loop then calls `connection_made`, as it does for any asyncio protocol."""
        self.takes_more = True
        self._loop = asyncio.get_running_loop()
        self._session = Session()
        self.renewal: Renewal | None = None
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._end: asyncio.Future[ServerError] = self._loop.create_future()
        self._transport: asyncio.Transport
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_to_renew(self) -> bool:
        """Whether the connection should be replaced because the password that it was made with expires soon."""
        return self.renewal is not None and self.renewal.is_due

    def send(self, data: bytes) -> "asyncio.Future[Any]":
        """Send one command, and return a future for the reply."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        if self._end.done():
            reply.set_result(self._end.result())
        else:
            self._awaited.append(reply)
            self._transport.write(data)
        return reply

    async def request(self, data: bytes) -> Any:
        """Send one command and wait for its reply. Raises ServerError if the connection fails or the reply is an
        error."""
        reply = await self.send(data)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    async def drain(self) -> None:
        """Wait while the write buffer is full because the server is slow to read. If the connection ends, this returns
        too."""
        await self._has_room.wait()

    def retire(self) -> None:
        """Accept no more commands, and close the stream as soon as no caller waits for a reply."""
        self.takes_more = False
        if all(reply.done() for reply in self._awaited):
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        """Close at once. Waiting callers get an error with the reason `why`. It is safe to call this twice."""
        self._finish(ConnectionLost(why, REASON_NETWORK))

    def close_with_loop(self) -> None:
        """Start a task that closes the connection when the event loop ends. A loop cancels its tasks when it ends, and
        the task closes the connection when it is cancelled.
        """
        self._watching = self._loop.create_task(self._closed(), name="rota-client")

    async def _closed(self) -> None:
        try:
            await asyncio.wait([self._end])
        finally:
            self.close()

    # The methods that the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._session.take(data)
        while not self._end.done():
            try:
                reply = self._session.reply()
            except ServerError as error:
                if not error.is_reply:
                    self._finish(error)
                    return
                reply = error
            if reply is NO_REPLY:
                return
            self._give(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self._finish(connection_fault("the connection broke", error))
        else:
            self._finish(ConnectionLost("the server closed the connection", REASON_NETWORK))

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def _give(self, reply: Any) -> None:
        if not self._awaited:
            self._finish(ConnectionLost("the server sent a reply to no command", REASON_PROTOCOL))
            return
        waits = self._awaited.popleft()
        if not waits.done():
            waits.set_result(reply)
        # With this error, the server is no longer a primary, or is cut off from its replicas.
        if isinstance(reply, ConnectionLost) and not reply.is_redirection:
            self._finish(reply)
        # A node that no longer has the slot still replies to the commands that it has received.
        elif isinstance(reply, ConnectionLost) or not self.takes_more:
            self.retire()

    def _finish(self, why: ServerError) -> None:
        if self._end.done():
            return
        self.takes_more = False
        lost = ConnectionLost(f"the connection ended: {why}", REASON_NETWORK) if why.is_reply else why
        self._end.set_result(lost)
        for waits in self._awaited:
            if not waits.done():
                waits.set_result(lost)
        self._awaited.clear()
        self._has_room.set()
        with contextlib.suppress(RuntimeError):  # the loop may be closing already
            if self._transport.get_extra_info("sslcontext") is None:
                self._transport.close()
            else:
                # With TLS, `close` would wait until the server closes the connection too, which may never happen.
                self._transport.abort()


class StreamOpener(Protocol):
    """Opens asyncio connections. This is the interface of `Opener` and of the openers of an application's pool."""

    @property
    def place(self) -> str:
        """The server as error messages show it."""
        ...

    def patience(self, seconds: float) -> float:
        """Return how many seconds it may take to open a connection if a reply may take `seconds`."""
        ...

    async def open(self) -> AioStream:
        """Open a connection, send the greeting, and return the connection. Raises ServerError if it cannot be
        opened."""
        ...


class Opener:
    """Opens connections to a server, or to the primary that a search finds."""

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._name = name
        self._resolver = Resolver()
        self.place = address.place

    def patience(self, seconds: float) -> float:
        """Return how many seconds it may take to open a connection.

        With sentinels, the limit does not depend on `seconds`. Otherwise the search over a slow network might never end
        in time, although each single reply arrives in time.
        """
        # Each step of the search has its own limit, so allow for all of them. If one short limit applied to the whole
        # search, a sentinel that does not reply could use it up. The next search would begin with that sentinel again,
        # and never reach the others.
        return self._address.search_seconds if self._address.has_failover else seconds

    async def open(self) -> AioStream:
        """Open a connection, send the greeting, and return the connection. Raises ServerError if it cannot be
        opened."""
        try:
            return await self._open_primary()
        except ServerError as error:
            if not self._address.has_other_login(error):
                raise
        return await self._open_primary()

    async def _open_primary(self) -> AioStream:
        if not self._address.has_failover:
            return await self._open(self._address)
        searching = search(self._address)
        query = next(searching)
        while True:
            stream, reply = await self._query_once(query)
            try:
                query = searching.send(reply)
            except StopIteration:  # the last query went to the primary, so keep this connection
                assert stream is not None
                return stream
            except BaseException:
                _close(stream)
                raise
            _close(stream)

    async def _query_once(self, query: Query) -> tuple[AioStream | None, Any]:
        stream = None
        try:
            async with asyncio.timeout(query.seconds):
                stream = await self._open(query.address)
                return stream, await stream.request(command((pack(query.args),)))
        except TimeoutError:
            return stream, ConnectionLost(f"no reply within {query.seconds:g} s", REASON_SILENT)
        except ServerError as error:
            return stream, error
        except BaseException:
            _close(stream)
            raise

    async def _open(self, address: Address) -> AioStream:
        try:
            stream = await self._connect(address)
        except OSError as error:
            raise connection_fault(f"no connection to {address.place}", error) from error
        try:
            await self._greet(stream, address)
        except ConnectionLost as error:
            stream.close()
            raise greeting_fault(error, address) from error
        except BaseException:  # catch everything, because a connection must not be used if its greeting is not complete
            stream.close()
            raise
        return stream

    async def _greet(self, stream: AioStream, address: Address) -> None:
        login = address.kept_login
        if login is None:
            login = await asyncio.to_thread(address.login)
        *first, name = greeting(address, login, self._name)
        for each in first:
            await stream.request(each)
        with contextlib.suppress(errors.Refused):
            await stream.request(name)
        stream.renewal = address.renewal_of(login)

    async def _connect(self, address: Address) -> AioStream:
        loop = asyncio.get_running_loop()
        if address.path:
            return (await loop.create_unix_connection(AioStream, address.path))[1]
        secure = tls_context(address.tls_files) if address.tls else None
        called = address.host if address.tls else None
        failed: OSError = OSError("the host name has no address")
        for each in await self._resolver.addresses_of(address.host):
            try:
                made = loop.create_connection(AioStream, each, address.port, ssl=secure, server_hostname=called)
                return (await made)[1]
            except OSError as error:
                failed = error
        raise failed


def _close(stream: AioStream | None) -> None:
    if stream is not None:
        stream.close()


@dataclass(frozen=True, slots=True)
class ConnectionWatch:
    """Callbacks with which the owner of a connection observes its commands, for example to end an outage. `asked` is
    called before each command, `up` after each command that succeeds, and `down` with the error of each command that
    fails."""

    up: Callable[[], None] = lambda: None
    down: Callable[[ServerError], None] = lambda _error: None
    asked: Callable[[], None] = lambda: None


class AioConnection:
    """A connection that is opened when it is first needed, and opened again after it was lost."""

    def __init__(
        self,
        opener: StreamOpener,
        seconds: Callable[[], float] = lambda: 5.0,
        watch: ConnectionWatch | None = None,
    ) -> None:
        """Prepare the connection without opening it. `seconds` returns the time limit of a reply and of an attempt to
        connect. A search for the primary has its own limit."""
        self._opener = opener
        self._seconds = seconds
        self._watch = watch or ConnectionWatch()
        self._lock = asyncio.Lock()
        self._stream: AioStream | None = None

    @property
    def is_connected(self) -> bool:
        """Whether this process has an open connection. The connection may have been lost without the process
        noticing."""
        return self._stream is not None

    async def run(self, call: ScriptCall[T]) -> T:
        """Run a script once and parse its reply. Raises ServerError if it fails."""
        return await self._watched(self._run(call))

    async def execute(self, *args: Arg) -> Any:
        """Run a Redis command and return the reply as hiredis parses it. Raises ServerError if it fails."""
        return await self.request(command((pack(args),)))

    async def request(self, data: bytes) -> Any:
        """Run a Redis command in wire form and return the reply as hiredis parses it. Raises ServerError if it
        fails."""
        return await self._watched(self._request(data))

    async def close(self) -> None:
        """Close the connection at once. The next command opens it again. It is safe to call this twice."""
        self._drop()

    async def _watched(self, step: Awaitable[T]) -> T:
        try:
            reply = await step
        except ServerError as error:
            self._watch.down(error)
            raise
        self._watch.up()
        return reply

    async def _run(self, call: ScriptCall[T]) -> T:
        try:
            raw = await self._request(call.by_sha())
        except errors.UnknownScript:
            raw = await self._request(call.by_text())
        return errors.read_reply(call, raw)

    async def _request(self, data: bytes) -> Any:
        async with self._lock:
            self._watch.asked()
            if self._stream is not None and self._stream.is_to_renew:
                self._drop()
            try:
                if self._stream is None:
                    self._stream = await within(self._opener.patience(self._seconds()), self._opener.open())
                return await within(self._seconds(), self._stream.request(data))
            # Close the connection, because no caller waits for the late reply any longer.
            except (ConnectionLost, asyncio.CancelledError):
                self._drop()
                raise

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


async def within(seconds: float, step: Awaitable[T]) -> T:
    """Wait for a step, for example for a reply. Raises ConnectionLost if the step takes longer than `seconds`, and any
    error that the step raises."""
    try:
        async with asyncio.timeout(seconds):
            return await step
    except TimeoutError as error:
        raise too_slow(seconds) from error


def too_slow(seconds: float) -> ConnectionLost:
    """Return the error for a server that did not reply within `seconds`."""
    return ConnectionLost(f"the server did not reply within {seconds:g} s", REASON_SILENT)


class Resolver:
    """Looks up host names in daemon threads, for which the process does not wait when it exits.

    asyncio's own lookup runs in the loop's default executor, which `asyncio.run` joins. So if a resolver hung for 20 s,
    a master that receives TERM would exit up to 20 s late, whatever its deadlines.

    If a lookup of a name is already running, further callers wait for its result. So a resolver that hangs takes only
    one thread for each name, however often the name is looked up.
    """

    def __init__(self) -> None:
        self._lookup: dict[str, asyncio.Future[Found]] = {}

    async def addresses_of(self, host: str) -> list[str]:
        """Return the IP addresses of a host, the best first. If `host` is an IP address, return just that. Raises
        OSError if the host has no address."""
        if _is_address(host):
            return [host]
        lookup = self._lookup.get(host) or self._start(host)
        found = await asyncio.shield(lookup)  # if this caller gives up, the lookup continues for the others
        if isinstance(found, OSError):
            raise found
        return found

    def _start(self, host: str) -> "asyncio.Future[Found]":
        loop = asyncio.get_running_loop()

        def look_up() -> None:
            found = _look_up(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended during the lookup
                loop.call_soon_threadsafe(self._end, host, found)

        try:
            threading.Thread(target=look_up, daemon=True, name="rota-resolver").start()
        except RuntimeError as error:  # no more threads can be started
            raise OSError(str(error)) from error
        self._lookup[host] = lookup = loop.create_future()
        return lookup

    def _end(self, host: str, found: Found) -> None:
        lookup = self._lookup.pop(host)
        if not lookup.done():
            lookup.set_result(found)


def _look_up(host: str) -> Found:
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)))
    except OSError as error:
        return error
    except UnicodeError as error:  # a part of the host name is empty or too long
        return OSError(f"{host!r} is not a valid host name: {error}")


def _is_address(host: str) -> bool:
    for family in _FAMILIES:
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False
