"""What an asyncio client only looks at. What is asked is that of `rota.client.looking`."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeVar

from rota.client.aio.event_stream import AsyncTaskEvents
from rota.client.interception import interception
from rota.client.looking import explaining, looking_at, peeking, unknown_for, wanted_events
from rota.client.queues import DEFAULT_LIMIT, QueueCounts, QueuedTask, find_queues
from rota.client.status import TaskStatus
from rota.durations import Duration
from rota.errors import RotaError
from rota.foreign_names import KnowsForeignNames
from rota.protocol.command import Steps
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import State
from rota.protocol.turns import DEFAULT_CLAIMS
from rota.server.aio_endpoint import AioEndpoint

if TYPE_CHECKING:
    from rota.client.explanation import Explanation

T = TypeVar("T")


class FollowAsync(Protocol):
    """Takes steps one by one, and returns what they return."""

    async def __call__(self, steps: Steps[T], /) -> T: ...


class AsyncLooking(KnowsForeignNames, ABC, place="client"):
    """As `Looking`, awaited."""

    namespace: str
    _store: Store
    _endpoint: AioEndpoint
    _timeout_seconds: float

    @abstractmethod
    async def _follow(self, steps: Steps[T], /) -> T: ...

    async def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Where a task stands. Never raises: what cannot be found out is `unknown`, with the reason in `error`."""
        try:
            return await self._follow(looking_at(self._store, task_id, args=args))
        except RotaError as error:
            return unknown_for(task_id, error)

    async def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """The first tasks that stand in a queue, or in all: see `Client.peek`."""
        return await self._follow(peeking(self._store, queue, state, task, limit))

    async def queues(self) -> list[QueueCounts]:
        """All queues that have or had tasks, by name, with how many tasks stand where: see `Client.queues`."""
        return await self._follow(find_queues(self._store))

    async def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """The next `n` claims in order, and why it is these: see `Client.explain`."""
        return await self._follow(explaining(self._store, n, queue, task_id, pool))

    def events(
        self,
        after: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        timeout: Duration | None = None,
    ) -> AsyncTaskEvents:
        """Follow task events on a connection of its own, with `async for`: see `Client.events`. It stands at its place,
        and raises what cannot be, when it is entered with `async with`, else at the first event."""
        wanted = wanted_events(after, queue, task, timeout)
        if (interceptor := interception.interceptor) is not None:
            interceptor.run(self.namespace, self._store.events("$", BATCH))  # raises: it answers no such question
        return AsyncTaskEvents(self._endpoint, self._timeout_seconds, self._store, wanted)
