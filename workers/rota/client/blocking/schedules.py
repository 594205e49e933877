# Generated from rota/client/aio/schedules.py by `make blocking`: change that, not this.
"""`client.schedules`: the schedules of a fleet, to be looked at and changed."""

from typing import Any

from rota.client.blocking.driver import Driver
from rota.client.blocking.handles import Handle, TaskAccess
from rota.client.schedule_steps import ScheduleSteps
from rota.protocol.schedule_store import PutWord
from rota.schedules.schedule_status import ScheduleStatus, Times
from rota.tasks.periodic import Periodic
from rota.tasks.registry import TaskDefinition


class Schedules:
    """What a client can ask of schedules. Everything raises Unavailable or Uncertain as `Client.cancel` does, and
    InvalidName for what is no name."""

    def __init__(self, client: TaskAccess, driver: Driver, steps: ScheduleSteps) -> None:
        self._client = client
        self._driver = driver
        self._steps = steps

    def list(self) -> "list[ScheduleStatus]":
        """All schedules, those first that are due next."""
        return self._driver.follow(self._steps.list())

    def get(self, name: str) -> ScheduleStatus | None:
        """A schedule; None when there is none of that name."""
        return self._driver.follow(self._steps.get(name))

    def upcoming(self, name: str, count: int = 10) -> Times:
        """The times of its next occurrences, as if it were not paused. Raises UnknownSchedule."""
        return self._driver.follow(self._steps.upcoming(name, count))

    def put(self, name: str, task: TaskDefinition[..., Any] | str, when: Periodic) -> PutWord:
        """Have a task enqueued periodically, or change that: `put("nightly", report, rota.Cron("0 3 * * *"))`.

        The task by its name needs `queue` in `when`, unless it is declared in this process. It stays until a client
        removes it. Returns "new", "changed" or "same". Raises ScheduleDeclared when a node's code or configuration has
        one of that name; InvalidArguments, PayloadTooLarge, ValueError or TypeError for what cannot be.
        """
        return self._driver.follow(self._steps.put(name, task, when))

    def remove(self, name: str) -> bool:
        """Remove what a client has put; False when there is none of that name. What of it waits or runs goes on.

        Raises ScheduleDeclared for one of a node's code or configuration: it goes with that, and can be paused.
        """
        return self._driver.follow(self._steps.remove(name))

    def pause(self, name: str) -> bool:
        """Have nothing of it enqueued any more; False when it was paused already. Raises UnknownSchedule."""
        return self._driver.follow(self._steps.pause(name))

    def resume(self, name: str) -> bool:
        """Let it go on with its next occurrence: those of the pause were not missed. False when it was not paused.
        Raises UnknownSchedule."""
        return self._driver.follow(self._steps.resume(name))

    def run_now(self, name: str) -> Handle[Any]:
        """Enqueue it once more, due now, also while it is paused. Where occurrences may not overlap and one has not
        ended, the handle is of that one, and says `duplicate`. Raises UnknownSchedule."""
        return Handle(*self._driver.follow(self._steps.run_now(name)), self._client)
