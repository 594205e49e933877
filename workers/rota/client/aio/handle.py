"""A task as whoever awaits its enqueue sees it."""

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from rota.client.status import TaskStatus
from rota.durations import Duration
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelWord

R_co = TypeVar("R_co", covariant=True)


class AsyncTaskAccess(Protocol):
    """A client, as far as the handle of a task needs it."""

    async def status(self, task_id: str, *, args: bool = False) -> TaskStatus: ...
    async def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    async def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    async def result(self, task_id: str, timeout: Duration | None = None) -> Any: ...
    async def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord: ...


@dataclass(frozen=True)
class AsyncHandle(KnowsForeignNames, Generic[R_co], place="handle"):
    """An enqueued task, as `Handle`: `duplicate` and `id` are the same, its methods are awaited."""

    id: str
    duplicate: bool
    client: AsyncTaskAccess = field(repr=False, compare=False)

    async def status(self) -> TaskStatus:
        """Where the task stands now. Never raises: see `AsyncClient.status`."""
        return await self.client.status(self.id)

    async def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the task has ended, however that may be; returns its status. Raises as `AsyncClient.wait`."""
        return await self.client.wait(self.id, timeout)

    async def wait_started(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended; returns its status."""
        return await self.client.wait_started(self.id, timeout)

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the task has ended, and return what its function returned. Raises as `AsyncClient.result`."""
        returned: R_co = await self.client.result(self.id, timeout)
        return returned

    async def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """End the task if it still waits, have `rota.Cancelled` raised in it if it runs: see `AsyncClient.cancel`."""
        return await self.client.cancel(self.id, kill_after)
