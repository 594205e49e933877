"""`client.schedules` for asyncio."""

from typing import TYPE_CHECKING, Any, TypeVar

from rota.client.aio.handles import AsyncHandle, AsyncTaskAccess
from rota.client.aio.looking import FollowAsync
from rota.client.schedules import ScheduleSteps
from rota.protocol.schedule_store import PutWord
from rota.schedules.schedule_status import ScheduleStatus, Times
from rota.tasks.periodic import Periodic

if TYPE_CHECKING:
    from rota.tasks.definition import TaskDefinition

__all__ = ["AsyncSchedules", "ScheduleSteps"]

T = TypeVar("T")


class AsyncSchedules:
    """What an asyncio client can ask of schedules, as `Schedules`. Everything raises Unavailable or Uncertain as
    `AsyncClient.cancel` does, and InvalidName for what is no name."""

    def __init__(self, client: AsyncTaskAccess, follow: FollowAsync, steps: ScheduleSteps) -> None:
        self._client = client
        self._follow = follow
        self._steps = steps

    async def list(self) -> "list[ScheduleStatus]":
        """All schedules, those first that are due next."""
        return await self._follow(self._steps.list())

    async def get(self, name: str) -> ScheduleStatus | None:
        """A schedule; None when there is none of that name."""
        return await self._follow(self._steps.get(name))

    async def upcoming(self, name: str, count: int = 10) -> Times:
        """The times of its next occurrences, as if it were not paused. Raises UnknownSchedule."""
        return await self._follow(self._steps.upcoming(name, count))

    async def put(self, name: str, task: "TaskDefinition[..., Any] | str", when: Periodic) -> PutWord:
        """Have a task enqueued periodically, or change that: see `Schedules.put`, which raises the same."""
        return await self._follow(self._steps.put(name, task, when))

    async def remove(self, name: str) -> bool:
        """Remove what a client has put; False when there is none of that name. Raises ScheduleDeclared."""
        return await self._follow(self._steps.remove(name))

    async def pause(self, name: str) -> bool:
        """Have nothing of it enqueued any more; False when it was paused already. Raises UnknownSchedule."""
        return await self._follow(self._steps.pause(name))

    async def resume(self, name: str) -> bool:
        """Let it go on with its next occurrence; False when it was not paused. Raises UnknownSchedule."""
        return await self._follow(self._steps.resume(name))

    async def run_now(self, name: str) -> AsyncHandle[Any]:
        """Enqueue it once more, due now: see `Schedules.run_now`. Raises UnknownSchedule."""
        return AsyncHandle(*await self._follow(self._steps.run_now(name)), self._client)
