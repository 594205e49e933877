"""The schedules that a task is declared with, by the arguments `cron`, `every` and `schedules` of `@rota.task`.

Only an application that declares something periodic loads this, with what reads cron expressions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.errors import DuplicateTask, InvalidArguments
from rota.schedules.schedule import Schedule
from rota.tasks.arguments import check_arguments
from rota.tasks.options import ScheduleArguments
from rota.tasks.periodic import UTC, Cron, Every, Periodic
from rota.tasks.registry import TaskDefinition


def declared(given: ScheduleArguments) -> tuple[Periodic, ...]:
    """What a decorator was given. Raises TypeError or ValueError."""
    cron, every, timezone = given.get("cron"), given.get("every"), given.get("timezone")
    if timezone is not None and cron is None:
        raise ValueError("timezone says by which clock cron goes: give cron with it")
    if cron is not None and every is not None:
        raise ValueError("give cron or every, not both: several stand in schedules=[rota.Cron(...), rota.Every(...)]")
    found: list[Periodic] = []
    if cron is not None:
        found.append(Cron(cron, timezone=UTC if timezone is None else timezone))
    if every is not None:
        found.append(Every(every))
    return (*found, *_listed(given.get("schedules") or ()))


def _listed(schedules: Sequence[Periodic]) -> Sequence[Periodic]:
    is_list = isinstance(schedules, list | tuple)
    for each in schedules if is_list else (schedules,):
        if not (is_list and isinstance(each, Periodic)):
            raise TypeError(f"schedules takes a list, [rota.Cron(...), rota.Every(...)], got {each!r}")
    return schedules


def dumped(task: TaskDefinition[..., Any], periodic: Periodic) -> Periodic:
    """The same with its arguments as JSON, checked against the task's signature. Raises InvalidArguments."""
    args, kwargs = periodic.args, periodic.kwargs
    if (args or kwargs) and (typed := task.read_annotations()) is not None:
        args, kwargs = typed.dump(args, kwargs)
    check_arguments(task.name, args, kwargs, task)
    try:
        task.bind(args, kwargs)
    except InvalidArguments as error:
        how = f"rota.{type(periodic).__name__}(..., args=[...])"
        raise InvalidArguments(f"{error}: a schedule calls it with its own, schedules=[{how}], or with none") from None
    return replace(periodic, args=args, kwargs=kwargs)


def schedules_of(task: TaskDefinition[..., Any], declarations: Sequence[Periodic]) -> tuple[Schedule, ...]:
    """The schedules of a task, checked against its signature. The first has the task's name unless it says its own,
    those behind it the task's and their number: `report`, `report:2`.

    Raises InvalidArguments, ValueError, TypeError, or DuplicateTask for two of one name.
    """
    made: dict[str, Schedule] = {}
    for number, given in enumerate(declarations, 1):
        each = dumped(task, given)
        schedule = each.of(task.name if number == 1 else f"{task.name}:{number}", task.name, task.options.queue, "code")
        if schedule.name in made:
            raise DuplicateTask(f"two schedules of task {task.name!r} are named {schedule.name!r}")
        made[schedule.name] = schedule
    return tuple(made.values())
