"""The asyncio client's steering side: as `rota.client.steering`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from rota.client.aio.looking import AsyncLooking
from rota.client.looking import cancelling
from rota.client.prepare import require_name
from rota.durations import Duration
from rota.options import check_queue
from rota.protocol.command import Command
from rota.protocol.replies import CancelWord

T = TypeVar("T")


class AsyncSteering(AsyncLooking):
    """As `Steering`, awaited."""

    @abstractmethod
    async def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T: ...

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
