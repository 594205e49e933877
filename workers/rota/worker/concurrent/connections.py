"""The two connections of a concurrent worker: one for turns and queries, and one that waits at the doorbells."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from rota.protocol.scripts import ScriptCall
from rota.server.address import Address
from rota.server.aio_connection import AioConnection, ConnectionWatch, Opener
from rota.server.connection import GRACE_SECONDS
from rota.server.link import Outages
from rota.server.server_errors import PushedBack, ServerError
from rota.tasks.claimed_call import MayStart, StartSteps
from rota.worker.attempt import Attempt
from rota.worker.doorbells import Bell

_REPLY_SECONDS: Final = 5.0


def turns_connection(address: Address, outages: Outages) -> AioConnection:
    """Return the connection for turns, and for the queries before a start. It never repeats a command."""
    return AioConnection(Opener(address, outages.name), lambda: _REPLY_SECONDS, ConnectionWatch(up=outages.succeeded))


class AioStartChecker:
    """Takes the steps that permit a start, without blocking."""

    def __init__(self, starts: StartSteps, connection: AioConnection, outages: Outages) -> None:
        self._starts = starts
        self._connection = connection
        self._outages = outages

    async def check_start(self, attempt: Attempt) -> MayStart:
        """Return whether a task may start."""
        steps = attempt.steps_to_start(self._starts)
        reply = None
        try:
            while True:
                step = steps.send(reply)
                reply = await (asyncio.sleep(step) if isinstance(step, float) else self._run(step))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's return value

    async def _run(self, command: ScriptCall[Any]) -> Any:
        try:
            return await self._connection.run(command)
        except ServerError as error:
            await asyncio.sleep(self._outages.failed(error))
            return None


class AioBell:
    """The doorbells of a concurrent worker.

    `rung` is called with the queue whose token was taken. If the queue is unknown because the connection was lost or
    closed during the wait, `rung` is called with all queues. If the wait timed out, it is called with no queue.
    """

    def __init__(self, bell: Bell, address: Address, outages: Outages, rung: Callable[[Iterable[str]], None]) -> None:
        self._bell = bell
        self._outages = outages
        self._connection = AioConnection(Opener(address, outages.name), lambda: bell.longest_seconds + GRACE_SECONDS)
        self._rung = rung
        self._parked: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Wait for a ring, unless a wait is under way already."""
        if self._parked is None:
            self._parked = asyncio.create_task(self._listen(), name="rota-bell")

    async def leave(self) -> None:
        """Stop listening. This closes the connection, because the turn that passes the tokens on could otherwise ring
        this bell."""
        parked = self._parked
        self._parked = None
        if parked is not None:
            parked.cancel()
            await asyncio.wait((parked,))
            self._rung(self._bell.queues)

    async def _listen(self) -> None:
        rung: Iterable[str]
        try:
            queue = self._bell.rung(await self._connection.request(self._bell.call(self._bell.longest_seconds)))
        except ServerError as error:
            await asyncio.sleep(self._outages.failed(error))
            rung = () if isinstance(error, PushedBack) else self._bell.queues
        else:
            self._outages.succeeded()
            rung = (queue,) if queue else ()
        self._parked = None
        self._rung(rung)
