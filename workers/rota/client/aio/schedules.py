"""The object `client.schedules`, which lists, changes and runs the schedules of a fleet."""

from typing import Any

from rota.client.aio.driver import AsyncDriver
from rota.client.aio.handles import AsyncHandle, AsyncTaskAccess
from rota.client.schedule_steps import ScheduleSteps
from rota.protocol.schedule_store import PutStatus
from rota.schedules.schedule_status import ScheduleStatus, Times
from rota.tasks.periodic import Periodic
from rota.tasks.registry import TaskDefinition


class AsyncSchedules:
    """The schedules of a fleet, which a client can read and change.

    Each method raises InvalidName if a name is not valid, Unavailable if the server cannot be reached or refuses the
    call, and Uncertain if the server did not reply in time.
    """

    def __init__(self, client: AsyncTaskAccess, driver: AsyncDriver, steps: ScheduleSteps) -> None:
        self._client = client
        self._driver = driver
        self._steps = steps

    async def list(self) -> "list[ScheduleStatus]":
        """Return all schedules, ordered by their next occurrence."""
        return await self._driver.follow(self._steps.list())

    async def get(self, name: str) -> ScheduleStatus | None:
        """Return the schedule with this name, or None if there is none."""
        return await self._driver.follow(self._steps.get(name))

    async def upcoming(self, name: str, count: int = 10) -> Times:
        """Return the times of the next `count` occurrences, as if the schedule were not paused.

        Raises:
            UnknownSchedule: If there is no schedule with this name.
        """
        return await self._driver.follow(self._steps.upcoming(name, count))

    async def put(self, name: str, task: TaskDefinition[..., Any] | str, when: Periodic) -> PutStatus:
        """Create or change a schedule that enqueues a task periodically, and return "new", "changed" or "same".

            await client.schedules.put("nightly", report, rota.Cron("0 3 * * *"))

        If the task is given by its name, `when` needs a `queue`, unless this process declares the task. The schedule
        stays until a client removes it.

        Raises:
            ScheduleDeclared: If a node's code or configuration declares a schedule with this name.
            InvalidArguments: If the arguments are not JSON, or do not fit the task's signature.
            PayloadTooLarge: If the body of the task is larger than `max_payload_kb`.
            TypeError: If `when` is not `rota.Cron` or `rota.Every`, or if `task` is neither a task nor a name.
            ValueError: If `when` is not valid, or has a name other than `name`.
        """
        return await self._driver.follow(self._steps.put(name, task, when))

    async def remove(self, name: str) -> bool:
        """Remove a schedule that a client created, and return False if there is none. Occurrences that were enqueued
        ahead of time are cancelled. Ready and running tasks continue.

        Raises:
            ScheduleDeclared: If a node's code or configuration declares the schedule. Remove it there, or pause it.
        """
        return await self._driver.follow(self._steps.remove(name))

    async def pause(self, name: str) -> bool:
        """Pause a schedule, so that it enqueues no more tasks, and return False if it was already paused.

        Raises:
            UnknownSchedule: If there is no schedule with this name.
        """
        return await self._driver.follow(self._steps.pause(name))

    async def resume(self, name: str) -> bool:
        """Resume a schedule from its next occurrence on, and return False if it was not paused.

        Occurrences that were due during the pause are skipped.

        Raises:
            UnknownSchedule: If there is no schedule with this name.
        """
        return await self._driver.follow(self._steps.resume(name))

    async def run_now(self, name: str) -> AsyncHandle[Any]:
        """Enqueue one more occurrence, due now, even if the schedule is paused, and return its handle.

        If occurrences may not overlap and an earlier one has not ended, nothing is enqueued. In that case, this returns
        the handle of the earlier one, with `duplicate` set.

        Raises:
            UnknownSchedule: If there is no schedule with this name.
            ValueError: If the client has signing keys, and the schedule's signature is wrong, or missing although it is
                required.
        """
        return AsyncHandle(*await self._driver.follow(self._steps.run_now(name)), self._client)
