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
    """Return the connection for turns, and for queries about whether a task may start. It never repeats a command."""
    return AioConnection(Opener(address, outages.name), lambda: _REPLY_SECONDS, ConnectionWatch(up=outages.succeeded))


class AioStartChecker:
    """Asks Redis whether a task may start, without blocking the loop."""

    def __init__(self, starts: StartSteps, connection: AioConnection, outages: Outages) -> None:
        self._starts = starts
        self._connection = connection
        self._outages = outages

    async def check_start(self, attempt: Attempt) -> MayStart:
        """Return the permission for this attempt to start, or the reason why it may not. Waits and repeats queries
        while Redis is unavailable."""
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
    """Waits at the doorbells for a concurrent worker.

    When a wait ends, `rung` is called with the queues that may have new tasks: the queue whose token was taken, or no
    queue if the wait timed out. If the connection was lost or closed during the wait, these are all queues, because any
    token may have been taken.
    """

    def __init__(self, bell: Bell, address: Address, outages: Outages, rung: Callable[[Iterable[str]], None]) -> None:
        self._bell = bell
        self._outages = outages
        self._connection = AioConnection(Opener(address, outages.name), lambda: bell.longest_seconds + GRACE_SECONDS)
        self._rung = rung
        self._parked: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Start waiting at the doorbells, unless a wait is already under way."""
        if self._parked is None:
            self._parked = asyncio.create_task(self._listen(), name="rota-bell")

    async def leave(self) -> None:
        """Stop waiting at the doorbells. This closes the connection, because otherwise the turn that passes tokens on
        to other workers could ring this worker's own bell."""
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
