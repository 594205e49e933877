"""Periodic tasks as callers declare them: `rota.Cron`, `rota.Every`, and the arguments `cron`, `every` and `schedules`
of `@rota.task`. Each of them is converted to a Schedule, the form that all other code uses.

This module, and the parser of cron expressions, is loaded only if an application declares something periodic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

from rota.durations import Duration, microseconds, unix_microseconds
from rota.errors import DuplicateTask, InvalidArguments
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.schedules.schedule import CronRule, EveryRule, Missed, Overlap, Rule, Schedule, Source
from rota.tasks.arguments import DescribesArguments, check_arguments, require_collections

if TYPE_CHECKING:
    from rota.tasks.typed_arguments import TypedArguments

UTC = "UTC"
_AS = {"expression": ' such as "0 3 * * *"', "timezone": ' such as "Europe/Zurich"', "name": "", "queue": ""}


@dataclass(frozen=True, kw_only=True)
class Periodic:
    """The options that `Cron` and `Every` share.

    * `name`: the name of the schedule. Default: the task's name.
    * `queue`: the queue of its tasks. Default: the task's queue.
    * `missed`: which occurrences are enqueued later if their time passed while no fleet ran: the "last" one (the
      default), "all" (the last 1,000), or "none".
    * `overlap`: whether an occurrence is skipped ("skip", the default) or enqueued anyway ("queue") if the previous one
      has not ended.
    * `jitter`: the longest random delay of each occurrence. Default: 0.
    * `start`, `end`: occurrences are at or after `start` and before `end`.
    """

    name: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    missed: Missed = "last"
    overlap: Overlap = "skip"
    jitter: Duration = 0
    start: datetime | None = None
    end: datetime | None = None

    if not TYPE_CHECKING:  # type checkers derive the constructor's arguments from the fields

        def __new__(cls, *positional: object, **given: object) -> Self:
            if len(positional) > 1:
                raise TypeError(
                    f"rota.{cls.__name__} takes one positional argument, then options such as timezone= and args="
                )
            if unknown := sorted(given.keys() - cls.__dataclass_fields__.keys()):
                raise TypeError(
                    fault_in_option(
                        unknown[0], f"rota.{cls.__name__}", FOREIGN_NAMES["schedule"], cls.__dataclass_fields__
                    )
                )
            return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check the fields. Raises ValueError or TypeError if a field is wrong. If `args` or `kwargs` are wrong, the
        TypeError is its subclass InvalidArguments."""
        require_collections(type(self).__name__, self.args, self.kwargs)
        for what, example in _AS.items():
            value = getattr(self, what, None)
            if not isinstance(value, str | None):
                raise TypeError(f"{what} must be a string{example}, got {value!r}")
        self.of("name", "task", "default", "code")

    @property
    def rule(self) -> Rule:
        """The rule that determines the times of the occurrences."""
        raise NotImplementedError

    def of(self, name: str, task: str, queue: str, source: Source) -> Schedule:
        """Return the schedule that this object declares for a task. The arguments `name` and `queue` are the defaults
        for the fields of the same name. `source` is where the schedule was declared."""
        return Schedule(
            name=name if self.name is None else self.name,
            task=task,
            rule=self.rule,
            queue=queue if self.queue is None else self.queue,
            args=tuple(self.args),
            kwargs=dict(self.kwargs),
            missed=self.missed,
            overlap=self.overlap,
            jitter_us=microseconds(self.jitter, "jitter"),
            start_us=None if self.start is None else unix_microseconds(self.start, "start"),
            end_us=None if self.end is None else unix_microseconds(self.end, "end"),
            source=source,
        )


@dataclass(frozen=True)
class Cron(Periodic):
    """The times of a cron expression with the fields minute, hour, day of the month, month and day of the week. An
    optional field for the second comes first. Times are in `timezone`, a name in the IANA time zone database, such as
    "Europe/Zurich"."""

    expression: str
    timezone: str = field(default=UTC, kw_only=True)

    @property
    def rule(self) -> CronRule:
        return CronRule(self.expression, self.timezone)


@dataclass(frozen=True)
class Every(Periodic):
    """The multiples of an interval (seconds or timedelta, at least one second). They are counted from `start`, or from
    1970-01-01 00:00 UTC if there is no start. So they do not depend on the time at which a node was started."""

    interval: Duration

    @property
    def rule(self) -> EveryRule:
        return EveryRule(microseconds(self.interval, "every"))


class ScheduledTask(DescribesArguments, Protocol):
    """The properties of a task that are needed to make its schedules."""

    name: str

    def read_annotations(self) -> "TypedArguments | None":
        """Return the converter of the task's arguments, or None if the annotations require no conversion."""

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Bind arguments to the signature. Raises InvalidArguments if they do not fit."""


def declared(given: Mapping[str, Any]) -> tuple[Periodic, ...]:
    """Return the schedules that the keyword arguments of `@rota.task` declare. Raises TypeError or ValueError if an
    argument is wrong."""
    cron = given.get("cron")
    every = given.get("every")
    timezone = given.get("timezone")
    if timezone is not None and cron is None:
        raise ValueError("timezone has no effect without cron: pass both")
    if cron is not None and every is not None:
        raise ValueError(
            "pass either cron or every, not both; for several schedules, use schedules=[rota.Cron(...), "
            "rota.Every(...)]"
        )
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
            raise TypeError(f"schedules takes a list, for example [rota.Cron(...), rota.Every(...)], got {each!r}")
    return schedules


def dumped(task: ScheduledTask, periodic: Periodic) -> Periodic:
    """Return a copy of `periodic` whose arguments are converted to JSON values. Raises InvalidArguments if they cannot
    be converted or do not fit the task's signature."""
    args = periodic.args
    kwargs = periodic.kwargs
    if (args or kwargs) and (typed := task.read_annotations()) is not None:
        args, kwargs = typed.dump(args, kwargs)
    check_arguments(task.name, args, kwargs, task)
    try:
        task.bind(args, kwargs)
    except InvalidArguments as error:
        how = f"schedules=[rota.{type(periodic).__name__}(..., args=[...])]"
        none = "" if args or kwargs else "; without args=, the schedule calls the task without arguments"
        raise InvalidArguments(f"{error}: pass the task's arguments in {how}{none}") from None
    return replace(periodic, args=args, kwargs=kwargs)


def schedules_of(task: ScheduledTask, queue: str, declarations: Sequence[Periodic]) -> tuple[Schedule, ...]:
    """Return the schedules of a task, checked against its signature. Schedules without a name get the task's name. From
    the second schedule on, a number is appended, for example `report:2`.

    Raises InvalidArguments, ValueError or TypeError if a declaration is wrong, and DuplicateTask if two schedules have
    the same name.
    """
    made: dict[str, Schedule] = {}
    for number, given in enumerate(declarations, 1):
        each = dumped(task, given)
        schedule = each.of(task.name if number == 1 else f"{task.name}:{number}", task.name, queue, "code")
        if schedule.name in made:
            raise DuplicateTask(f"two schedules of task {task.name!r} are named {schedule.name!r}")
        made[schedule.name] = schedule
    return tuple(made.values())
