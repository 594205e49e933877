"""The tasks a process knows, by name. A worker runs these and nothing else: no name is ever imported."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rota.errors import DuplicateTask
from rota.tasks.definition import TaskDefinition

AnyTask = TaskDefinition[..., Any]


def written_at(function: Callable[..., Any]) -> str:
    """Where a function is written, `file:line`; its module where that is not known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else str(function.__module__)


def _is_second(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether the module that runs now declares both functions, as two: a module that is loaded again is compiled
    again, and the code of what it declared before is no constant of its code."""
    first, second = (getattr(inspect.unwrap(each), "__code__", None) for each in (known, function))
    frame = inspect.currentframe()
    while frame is not None:
        constants = [id(constant) for constant in frame.f_code.co_consts]
        if id(second) in constants:
            return first is not second and id(first) in constants
        frame = frame.f_back
    return False


class Registry:
    """Tasks by name, in the order of their declaration."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Add a task; one of the same module and qualified name replaces the earlier, as when its module is reloaded.

        Raises DuplicateTask when the name is taken by another function, of the same name in the same module too, or
        that of a schedule by another task's.
        """
        known = self._tasks.get(task.name)
        if known is not None and (known.place != task.place or _is_second(known.function, task.function)):
            places = " and ".join(f"{each.place} ({written_at(each.function)})" for each in (known, task))
            raise DuplicateTask(
                f"two tasks are named {task.name!r}: {places}; "
                f'give one of them another name, as in @rota.task(name="...")'
            )
        for schedule in task.schedules:
            self._check_unused(schedule.name, task)
        self._tasks[task.name] = task

    def _check_unused(self, schedule: str, task: AnyTask) -> None:
        for other in self._tasks.values():
            if other.name != task.name and any(each.name == schedule for each in other.schedules):
                raise DuplicateTask(
                    f"two schedules are named {schedule!r}, of the tasks {other.name!r} and {task.name!r}: "
                    'give one another name, as in schedules=[rota.Cron(..., name="...")]'
                )

    def get(self, name: str) -> AnyTask | None:
        """The task of that name, or None."""
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(self._tasks.values())

    def __contains__(self, name: str) -> bool:
        return name in self._tasks


default_registry = Registry()
