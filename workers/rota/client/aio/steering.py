"""The asyncio client's steering side: as `rota.client.steering`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from rota.client.aio.looking import AsyncLooking
from rota.client.looking import cancelling
from rota.client.results import result_of
from rota.client.status import TaskStatus, status_of
from rota.client.waits import Goal
from rota.durations import Duration
from rota.protocol.command import Command
from rota.protocol.replies import CancelWord
from rota.protocol.views import TaskState
from rota.tasks.options import check_queue, require_name

T = TypeVar("T")


class AsyncSteering(AsyncLooking):
    """As `Steering`, awaited."""

    @abstractmethod
    async def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T: ...

    @abstractmethod
    async def _await(self, goal: Goal, task_id: str, timeout: Duration | None, /) -> TaskState: ...

    async def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, however that may be, and return its status: as `Client.wait`."""
        return status_of(task_id, await self._await(Goal.END, task_id, timeout))

    async def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended, and return its status: see `Client`."""
        return status_of(task_id, await self._await(Goal.START, task_id, timeout))

    async def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned. Raises as `Client.result`."""
        found = await self._await(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    async def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord:
        """End a task that waits, have `rota.Cancelled` raised in one that runs: see `Client.cancel`."""
        return await self._run(cancelling(self._store, task_id, kill_after), [task_id])

    async def pause(self, queue: str) -> bool:
        """Have no worker claim from the queue; False when it was paused already. Raises as `cancel`."""
        check_queue(queue)
        return await self._run(self._store.pause(queue)) > 0

    async def resume(self, queue: str) -> bool:
        """Have workers claim from the queue again; False when it was not paused. Raises as `cancel`."""
        check_queue(queue)
        return await self._run(self._store.resume(queue)) > 0

    async def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, its failures forgiven; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return await self._run(self._store.revive([task_id]), [task_id]) > 0

    async def purge_dead(self, task_id: str) -> bool:
        """Forget a dead task for good; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return await self._run(self._store.purge_dead([task_id]), [task_id]) > 0
