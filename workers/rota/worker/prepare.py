"""From a claimed body to a call that can be made, or the reason why it never can. Pure."""

import math
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.child.life import NANOSECONDS
from rota.child.settings import WorkerSettings
from rota.child.slot_task import UNKNOWN_TASK
from rota.errors import InvalidArguments
from rota.options import TaskOptions, effective_options
from rota.protocol.body import BodyError, decode_body
from rota.protocol.ends import ran_by
from rota.registry import Registry

if TYPE_CHECKING:
    from rota.client.tasks import Task

_KIBIBYTE: Final = 1024


class NotRunnable(StrEnum):
    """Why a body can never be called: reasons of its death."""

    GARBAGE = "garbage"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS = "arguments"


class Runnable(NamedTuple):
    """A call that can be made, with the options in force. `limit_ns`: its time limit in nanoseconds, and
    `soft_limit_ns` its soft one, 0 for none. `ran_by`: for the account of its run, empty when its end is not to be
    remembered."""

    task: "Task[..., Any]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: TaskOptions
    limit_ns: int
    soft_limit_ns: int
    ran_by: bytes

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name


@dataclass(frozen=True, slots=True)
class Unfit:
    """A body that can never be called. `name` is fit for a metric's label."""

    fault: NotRunnable
    error: str
    name: str = UNKNOWN_TASK


class Preparer:
    """Makes calls of bodies, for one registry and the settings of one worker."""

    def __init__(self, registry: Registry, settings: WorkerSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._most_bytes = settings.max_payload_kb * _KIBIBYTE
        self._pid = os.getpid()
        self._declared: dict[str, tuple[TaskOptions, int, int, bytes]] = {}

    def prepare(self, raw: bytes) -> Runnable | Unfit:
        """Decode a body, find its task, fit its arguments, and work out its options."""
        try:
            body = decode_body(raw, self._most_bytes)
        except BodyError as error:
            return Unfit(NotRunnable.GARBAGE, str(error))
        task = self._registry.get(body.name)
        if task is None:
            why = f"no task is named {body.name!r} here: import its module, or enqueue another"
            return Unfit(NotRunnable.UNKNOWN_TASK, why)
        try:
            args, kwargs = task.bind(body.args, body.kwargs)
        except InvalidArguments as error:
            return Unfit(NotRunnable.ARGUMENTS, str(error), task.name)
        return Runnable(task, args, kwargs, *self._options(task, body.options))

    def _options(self, task: "Task[..., Any]", enqueued: dict[str, Any]) -> tuple[TaskOptions, int, int, bytes]:
        """The options in force, both time limits (without one of its own a task has the fleet's), and who runs it."""
        known = self._declared.get(task.name)
        if known is not None and not enqueued:
            return known
        options = effective_options(task.options, self._settings.overrides.get(task.name), enqueued)
        time_limit = self._settings.time_limit_seconds if options.time_limit is None else options.time_limit
        soft_limit = options.soft_time_limit or 0.0
        # Task, operator and fleet each choose a limit: a soft one that comes out no shorter than the hard one never
        # passes.
        if soft_limit >= time_limit:
            options, soft_limit = replace(options, soft_time_limit=None), 0.0
        who = ran_by(self._pid, task.name) if options.remember else b""
        worked_out = options, round(time_limit * NANOSECONDS), math.ceil(soft_limit * NANOSECONDS), who
        if not enqueued:
            self._declared[task.name] = worked_out
        return worked_out
