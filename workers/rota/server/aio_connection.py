"""The asyncio connection to the server, for a process that must never block: what is said on it is that of `session`.

One command at a time, in the order of the callers. A connection that broke is made anew by the next command.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rota.protocol.command import Command
from rota.protocol.wire import Arg, command, pack
from rota.server import server_errors as errors
from rota.server.aio_streams import AioStreams, StreamOpener
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError

T = TypeVar("T")

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
