"""From a claimed body to a call that can be made, or the reason why it never can. Pure."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from rota.child.child_settings import TaskOverride
from rota.child.slot_record import UNKNOWN_TASK
from rota.durations import NANOSECONDS
from rota.errors import InvalidArguments
from rota.protocol.body import BodyError, decode_body
from rota.protocol.outcome import NotRunnable, ran_by
from rota.tasks.options import TaskOptions, effective_options, fault_in_options
from rota.tasks.registry import Registry

if TYPE_CHECKING:
    from rota.tasks.registry import TaskDefinition

_KIBIBYTE: Final = 1024
_MOST_REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class CallTerms:
    """What is the same for all calls of a task, unless one was enqueued with options of its own. `limit_ns`: the time
    limit in nanoseconds, and `soft_limit_ns` the soft one, 0 for none. `ran_by`: for the account of its run, empty when
    its end is not to be remembered. `verdicts`: what was decided of this task for its master, by failures.
    `asks_first`: whether Redis is to be asked before its start. `are_plain`: whether there is nothing to be seen to at
    its start, as it has the fleet's time limit and no other."""

    options: TaskOptions
    limit_ns: int
    soft_limit_ns: int
    ran_by: bytes
    verdicts: dict[int, int]
    asks_first: bool
    are_plain: bool


class Runnable(NamedTuple):
    """A call that can be made. `extra`: what its body has besides."""

    task: "TaskDefinition[..., Any]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    extra: dict[str, Any]
    terms: CallTerms

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name


_runnable: Final = partial(tuple.__new__, Runnable)  # as entries are made


@dataclass(frozen=True, slots=True)
class Unfit:
    """A body that can never be called. `name` is fit for a metric's label."""

    fault: NotRunnable
    error: str
    name: str = UNKNOWN_TASK


class TaskTerms(Protocol):
    """What the settings of a worker say of the tasks it runs."""

    @property
    def max_payload_kb(self) -> int: ...
    @property
    def time_limit_seconds(self) -> float: ...
    @property
    def overrides(self) -> Mapping[str, TaskOverride]: ...


class Preparer:
    """Makes calls of bodies, for one registry and the settings of one worker."""

    def __init__(self, registry: Registry, settings: TaskTerms) -> None:
        self._registry = registry
        self._settings = settings
        self._most_bytes = settings.max_payload_kb * _KIBIBYTE
        self._pid = os.getpid()
        self._declared: dict[str, CallTerms] = {}
        self._verdicts: dict[tuple[str, int], dict[int, int]] = {}

    def prepare(self, raw: bytes) -> Runnable | Unfit:
        """Decode a body, find its task, fit its arguments, and work out its options."""
        try:
            body = decode_body(raw, self._most_bytes)
        except BodyError as error:
            return Unfit(NotRunnable.GARBAGE, str(error))
        task = self._registry.get(body.name)
        if task is None:
            why = (
                f"no module that the fleet imports declares a task named {body.name!r}: add its module to `imports` of "
                "rota.toml, or correct the name"
            )
            return Unfit(NotRunnable.UNKNOWN_TASK, why)
        try:
            args, kwargs = task.received(body.args, body.kwargs)
        except InvalidArguments as error:
            return Unfit(NotRunnable.ARGUMENTS, str(error), task.name)
        enqueued = body.options
        if enqueued and (fault := fault_in_options(enqueued)):
            return Unfit(NotRunnable.OPTIONS, fault, task.name)
        terms = None if enqueued else self._declared.get(task.name)
        return _runnable((task, args, kwargs, body.extra, terms or self._terms(task, enqueued)))

    def _terms(self, task: "TaskDefinition[..., Any]", enqueued: dict[str, Any]) -> CallTerms:
        """Work them out; without a time limit of its own a task has the fleet's."""
        fleets_limit = self._settings.time_limit_seconds
        options = effective_options(task.options, self._settings.overrides.get(task.name), enqueued)
        time_limit = fleets_limit if options.time_limit is None else options.time_limit
        soft_limit = options.soft_time_limit or 0.0
        # Task, operator and fleet each choose a limit: a soft one that comes out no shorter than the hard one never
        # passes.
        if soft_limit >= time_limit:
            options, soft_limit = replace(options, soft_time_limit=None), 0.0
        who = ran_by(self._pid, task.name) if options.remember else b""
        verdicts = self._verdicts_of(task.name, options.retries)
        asks_first = options.is_started_once or options.rate is not None
        are_plain = time_limit == fleets_limit and not (soft_limit or asks_first or options.expires is not None)
        limits = round(time_limit * NANOSECONDS), math.ceil(soft_limit * NANOSECONDS)
        terms = CallTerms(options, *limits, who, verdicts, asks_first, are_plain)
        if not enqueued:
            self._declared[task.name] = terms
        return terms

    def _verdicts_of(self, name: str, retries: int) -> dict[int, int]:
        # Any producer may ask for any number of retries.
        if len(self._verdicts) >= _MOST_REMEMBERED:
            self._verdicts.clear()
        return self._verdicts.setdefault((name, retries), {})
