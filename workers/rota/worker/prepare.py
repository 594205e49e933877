"""From a claimed body to a call that can be made, or the reason why it never can. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rota.child.settings import WorkerSettings
from rota.errors import InvalidArguments
from rota.options import TaskOptions, effective_options
from rota.protocol.body import BodyError, decode_body
from rota.registry import Registry

if TYPE_CHECKING:
    from rota.tasks import Task

UNKNOWN_TASK: Final = "_unknown"  # the name in metrics and logs of what is not registered: any text might be
_KIBIBYTE: Final = 1024


class Fault(StrEnum):
    """Why a body can never be called: reasons of its death."""

    GARBAGE = "garbage"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that can be made, with the options in force. `time_limit` in seconds."""

    task: "Task[..., Any]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: TaskOptions
    time_limit: float

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name


@dataclass(frozen=True, slots=True)
class Unfit:
    """A body that can never be called. `name` is fit for a metric's label."""

    fault: Fault
    error: str
    name: str = UNKNOWN_TASK


def prepare(raw: bytes, registry: Registry, settings: WorkerSettings) -> Ready | Unfit:
    """Decode a body, find its task, fit its arguments, and work out its options."""
    try:
        body = decode_body(raw, settings.max_payload_kb * _KIBIBYTE)
    except BodyError as error:
        return Unfit(Fault.GARBAGE, str(error))
    task = registry.get(body.name)
    if task is None:
        return Unfit(Fault.UNKNOWN_TASK, f"no task is named {body.name!r} here: import its module, or enqueue another")
    try:
        args, kwargs = task.bind(body.args, body.kwargs)
    except InvalidArguments as error:
        return Unfit(Fault.ARGUMENTS, str(error), task.name)
    options = effective_options(task.options, settings.overrides.get(task.name), body.options)
    # A task without a limit of its own has the fleet's.
    time_limit = settings.time_limit_seconds if options.time_limit is None else options.time_limit
    return Ready(task, args, kwargs, _with_sound_limits(options, time_limit), time_limit)


def _with_sound_limits(options: TaskOptions, time_limit: float) -> TaskOptions:
    # Task, operator and fleet each choose a limit: a soft one that comes out no shorter than the hard one never passes.
    soft = options.soft_time_limit
    if soft is not None and soft >= time_limit:
        return replace(options, soft_time_limit=None)
    return options
