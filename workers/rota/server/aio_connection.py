"""The asyncio connection to the server: streams and hiredis, for a process that must never block.

One command at a time, in the order of the callers. Nothing is repeated but a script the server did not
know. A connection that broke is made anew by the next command.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hiredis

from rota.protocol.store import Command
from rota.protocol.wire import Arg, command, pack
from rota.server.address import Address
from rota.server.resolving import Resolver
from rota.server.sentinel import PRIMARY_SECONDS, SENTINEL_SECONDS, Question, search
from rota.server.sentinel_address import Sentinels
from rota.server.server_errors import (
    REASON_NETWORK,
    REASON_PROTOCOL,
    REASON_SILENT,
    ConnectionLost,
    Refused,
    ServerError,
    UnknownScript,
    error_of_reply,
    read_reply,
)

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

_READ_BYTES: Final = 1 << 16
_NO_REPLY: Final = object()
FIRST_RETRY_SECONDS: Final = 0.05  # for the back-off of callers that repeat
MOST_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionWatch:
    """Who is told: `up` after a command that went through, `down` with each error, `asked` before each command."""

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
        self._reader = _new_reader()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self._streams is not None

    async def run(self, call: Command[T]) -> T:
        """Run a script once and parse its answer. Raises ServerError."""
        try:
            raw = await self._watched(call.by_sha())
        except UnknownScript:
            raw = await self._watched(call.by_text())
        return read_reply(call, raw)

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
        except UnknownScript:
            raise
        except ServerError as error:
            self._watch.down(error)
            raise
        self._watch.up()
        return reply

    async def _ask(self, data: bytes) -> Any:
        try:
            if self._streams is None and self._address.sentinels is not None:
                await _within(self._searching_seconds(self._address.sentinels), self._connect())
            return await _within(self._seconds(), self._connect_and_exchange(data))
        except OSError as error:
            self._drop()
            raise ConnectionLost(f"no connection to {self._address.place}: {error}", REASON_NETWORK) from error
        except ConnectionLost:
            self._drop()
            raise
        except asyncio.CancelledError:  # a reply may still come and must not answer the next command
            self._drop()
            raise

    async def _connect_and_exchange(self, data: bytes) -> Any:
        if self._streams is None:
            await self._connect()
        return await self._exchange(data)

    @staticmethod
    def _searching_seconds(sentinels: Sentinels) -> float:
        # A sentinel that is silent costs its own step and no more, however short the patience with the server is: the
        # next search begins with it again, so one bound for all of them would never let it be passed over.
        return len(sentinels.places) * (SENTINEL_SECONDS + PRIMARY_SECONDS)

    async def _connect(self) -> None:
        try:
            if self._address.sentinels is None:
                await self._open(self._address)
            else:
                await self._open_primary()
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
        self._reader = _new_reader()
        if address.path:
            self._streams = await asyncio.open_unix_connection(address.path)
        else:
            self._streams = await self._open_tcp(address)
        if address.username or address.password:
            await self._exchange(command((pack(("AUTH", address.username or "default", address.password)),)))
        if address.database:
            await self._exchange(command((pack(("SELECT", address.database)),)))
        with contextlib.suppress(Refused):  # as in rota.server.connection
            await self._exchange(command((pack(("CLIENT", "SETNAME", self._name)),)))

    async def _open_tcp(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = _secure() if address.tls else None
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
        while (reply := self._next_reply()) is _NO_REPLY:
            received = await reader.read(_READ_BYTES)
            if not received:
                raise ConnectionLost("the server closed the connection", REASON_NETWORK)
            self._reader.feed(received)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def _next_reply(self) -> Any:
        try:
            return self._reader.gets()
        except hiredis.ProtocolError as error:
            raise ConnectionLost(f"the server answered something that is not RESP: {error}", REASON_PROTOCOL) from error

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


def _secure() -> "SSLContext":
    import ssl  # noqa: PLC0415 - 2 MB that only TLS needs

    return ssl.create_default_context()


def _new_reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=error_of_reply, notEnoughData=_NO_REPLY)
