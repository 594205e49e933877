"""`[schedules.NAME]`: what is wrong with them, and the schedules that they are. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rota.durations import microseconds, unix_microseconds
from rota.errors import InvalidArguments
from rota.protocol.keys import served_as
from rota.schedules.schedule import BadSchedule, CronRule, EveryRule, Rule, Schedule
from rota.tasks.arguments import check_arguments
from rota_supervisor.config.faults import Fault, suggestion
from rota_supervisor.config.model import Config, ScheduleConfig

_STANDS_IN = "a-queue"  # for one that only the code will name


def faults_of_schedules(config: Config) -> Iterator[Fault]:
    """What is wrong with each, as far as the file alone says."""
    for name, given in config.schedules.items():
        at = f"schedules.{name}"
        faults = list(_faults_of_keys(given)) or list(_faults_of_values(name, given))
        yield from (Fault(at if what in ("", "name") else f"{at}.{what}", message) for what, message in faults)
        yield from _faults_of_queue(config, f"{at}.queue", given.queue)


def _faults_of_keys(given: ScheduleConfig) -> Iterator[tuple[str, str]]:
    if not given.task:
        yield "task", "is missing: the name of the task that is to be enqueued"
    if bool(given.cron) == (given.every is not None):
        yield "", 'expected one of cron, as in "0 3 * * *", and every, in seconds'
    if given.timezone and not given.cron:
        yield "timezone", "says by which clock cron goes: there is no cron"


def _faults_of_values(name: str, given: ScheduleConfig) -> Iterator[tuple[str, str]]:
    try:
        check_arguments("arguments", given.args, given.kwargs)
    except InvalidArguments as error:
        yield "", str(error)
    try:
        _schedule(name, given, given.queue or _STANDS_IN)
    except BadSchedule as error:
        yield from error.faults


def _faults_of_queue(config: Config, path: str, queue: str) -> Iterator[Fault]:
    served = [each for tier in config.tiers for each in tier]
    if queue and served_as(queue, served) is None and config.unserved_queues == "error":
        yield Fault(path, f'queue "{queue}" stands in no tier{suggestion(queue, served)}')


def calls_of(config: Config) -> dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """What the schedules call, by their names: task, args and kwargs."""
    return {name: (given.task, given.args, given.kwargs) for name, given in config.schedules.items()}


def schedules_in_force(config: Config, queues: Mapping[str, str]) -> tuple[Schedule, ...]:
    """The schedules of a configuration. `queues`: by task, as the code says. One whose queue nobody says is left out:
    see `without_queue`."""
    found = ((name, given, given.queue or queues.get(given.task)) for name, given in config.schedules.items())
    return tuple(_schedule(name, given, queue) for name, given, queue in found if queue)


def without_queue(config: Config, tasks: Collection[str]) -> list[Fault]:
    """The schedules that say no queue, of tasks that no imported module defines: nobody knows where they go."""
    unknown = _of_unknown_tasks(config, tasks)
    return [
        Fault(path, f"{fault}; if another fleet has it, say its queue")
        for path, fault, given in unknown
        if not given.queue
    ]


def unknown_tasks(config: Config, tasks: Collection[str]) -> list[Fault]:
    """The other schedules of tasks that no imported module defines; another fleet may have them."""
    return [Fault(path, fault) for path, fault, given in _of_unknown_tasks(config, tasks) if given.queue]


def _of_unknown_tasks(config: Config, tasks: Collection[str]) -> Iterator[tuple[str, str, ScheduleConfig]]:
    for name, given in config.schedules.items():
        if given.task not in tasks:
            fault = f'no imported module defines the task "{given.task}"{suggestion(given.task, tasks)}'
            yield f"schedules.{name}.task", fault, given


def _schedule(name: str, given: ScheduleConfig, queue: str) -> Schedule:
    return Schedule(
        name=name,
        task=given.task,
        rule=_rule(given),
        queue=queue,
        args=given.args,
        kwargs=given.kwargs,
        missed=given.missed,
        overlap=given.overlap,
        jitter_us=microseconds(given.jitter, "jitter"),
        start_us=None if given.start is None else unix_microseconds(given.start, "start"),
        end_us=None if given.end is None else unix_microseconds(given.end, "end"),
        source="file",
    )


def _rule(given: ScheduleConfig) -> Rule:
    if given.every is not None:
        return EveryRule(microseconds(given.every, "every"))
    return CronRule(given.cron, given.timezone or "UTC")
