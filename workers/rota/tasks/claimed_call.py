"""From a claimed body to a call that may be made, or the reason why it never can: what workers and consumers share.

Before some starts Redis is asked whether the task's rate lets it start, and told that a task has begun that may be
started once at most. The steps are given one by one, so that a loop that blocks and one that must not take the same.

1. The script grants a start, or has taken the task out of its owner's hands. A start a few milliseconds ahead is
   granted too, and waited for.
2. The script marks an entry that may be started once at most, if the owner still holds it. Killed from here on, the
   task is dead.
3. Without an answer nothing is started. The owner still holds the entry, and whatever it does with it next, Redis
   tells it how the entry stands now: to ask again finds the mark. A start that was granted and not heard of is lost, so
   there are never more than the rate allows.
4. An answer may have been long in coming, so the owner checks once more whether it may start anything.
"""

import math
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from rota.durations import NANOSECONDS
from rota.errors import InvalidArguments
from rota.protocol.body import BodyError, decode_body
from rota.protocol.command import Command
from rota.protocol.entry import MICROSECONDS, Entry, parse_entry
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.outcome import NotRunnable, error_line, ran_by
from rota.protocol.store import Store
from rota.protocol.turns import ThrottleWord
from rota.tasks.fleet_settings import DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.options import TaskOptions, effective_options, fault_in_options
from rota.tasks.registry import AnyTask

if TYPE_CHECKING:
    from rota.child.child_settings import TaskOverride

_KIBIBYTE: Final = 1024
_MOST_REMEMBERED: Final = 1000
_MAY_END: Final = (ThrottleWord.START, ThrottleWord.LATE)  # in the hands of its owner: by its run, or without
_UNDECLARED: Final = (
    "no module that the fleet imports declares a task named {!r}: add its module to `imports` of rota.toml, or correct "
    "the name"
)


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

    task: AnyTask
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
    def overrides(self) -> "Mapping[str, TaskOverride]": ...


@dataclass(frozen=True, slots=True)
class DefaultTerms:
    """Settings of a process without a configuration: the defaults. `max_payload_kb`: 0 for any size."""

    max_payload_kb: int = 0
    time_limit_seconds: float = DEFAULT_TIME_LIMIT_SECONDS
    overrides: "Mapping[str, TaskOverride]" = field(default_factory=dict)


class KnownTasks(Protocol):
    """The tasks that a process can call, by name: usually a registry."""

    def get(self, name: str) -> AnyTask | None: ...


class Preparer:
    """Makes calls of bodies, for the tasks and the settings of one process."""

    def __init__(self, tasks: KnownTasks, settings: TaskTerms) -> None:
        self._tasks = tasks
        self._settings = settings
        self._most_bytes = settings.max_payload_kb * _KIBIBYTE
        self._pid = os.getpid()
        self._declared: dict[AnyTask, CallTerms] = {}
        self._verdicts: dict[tuple[str, int], dict[int, int]] = {}

    def prepare(self, raw: bytes) -> Runnable | Unfit:
        """Decode a body, find its task, fit its arguments, and work out its options. Never raises for its sake."""
        name = UNKNOWN_TASK
        try:
            body = decode_body(raw, self._most_bytes)
            task = self._tasks.get(body.name)
            if task is None:
                return Unfit(NotRunnable.UNKNOWN_TASK, _UNDECLARED.format(body.name))
            name = task.name
            args, kwargs = task.received(body.args, body.kwargs)
            enqueued = body.options
            if enqueued and (fault := fault_in_options(enqueued)):
                return Unfit(NotRunnable.OPTIONS, fault, name)
            terms = None if enqueued else self._declared.get(task)
            return _runnable((task, args, kwargs, body.extra, terms or self._terms(task, enqueued)))
        except BodyError as error:
            return Unfit(NotRunnable.GARBAGE, str(error))
        except InvalidArguments as error:
            return Unfit(NotRunnable.ARGUMENTS, str(error), name)
        except Exception as error:  # noqa: BLE001 - the task boundary: a body nobody foresaw is no reason to end a process
            return Unfit(NotRunnable.GARBAGE, f"it cannot be prepared: {error_line(error)}")

    def _terms(self, task: AnyTask, enqueued: dict[str, Any]) -> CallTerms:
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
            if len(self._declared) >= _MOST_REMEMBERED:
                self._declared.clear()
            self._declared[task] = terms
        return terms

    def _verdicts_of(self, name: str, retries: int) -> dict[int, int]:
        # Any producer may ask for any number of retries.
        if len(self._verdicts) >= _MOST_REMEMBERED:
            self._verdicts.clear()
        return self._verdicts.setdefault((name, retries), {})


class MayStart(NamedTuple):
    """Whether a task is to be started: its entry as it is now, None when it is not; and why."""

    entry: Entry | None
    word: ThrottleWord

    @property
    def refusal(self) -> Literal[ThrottleWord.THROTTLED] | None:
        """THROTTLED when the task's rate did not let it start: its owner has it no more. Else None: still held."""
        return ThrottleWord.THROTTLED if self.word is ThrottleWord.THROTTLED else None


Steps = Generator[Command[Any] | float, Any, MayStart]
"""Gives commands to be run, and is sent the answer to each, None for no answer; and seconds to be waited."""


@dataclass(frozen=True, slots=True)
class StartSteps:
    """The steps to the starts of tasks that `owner` holds. `may_start`: whether the owner may still start anything.
    `throttled` is called with the queue and the name of each task that may not start yet."""

    owner: str
    store: Store
    may_start: Callable[[], bool]
    throttled: Callable[[str, str], None]

    def steps(self, entry: Entry, ready: Runnable) -> Steps:
        """Give the steps to the start of a call whose terms say that Redis is asked first."""
        options, word = ready.terms.options, ThrottleWord.START
        if options.rate is not None:
            word = yield from self._throttle(entry, ready)
        if word is ThrottleWord.START and options.is_started_once:
            return MayStart((yield from self._begin(entry)), word)
        return MayStart(entry if word in _MAY_END else None, word)

    def _throttle(self, entry: Entry, ready: Runnable) -> Generator[Command[Any] | float, Any, ThrottleWord]:
        asked = ready.task.rate_asked(entry, ready.terms.options, ready.args, ready.kwargs)
        assert asked is not None
        word, us = (yield self.store.throttle(self.owner, asked)) or (ThrottleWord.GONE, 0)
        if word is ThrottleWord.THROTTLED:
            self.throttled(entry.queue, ready.name)
        elif word is ThrottleWord.START:
            yield us / MICROSECONDS
            return ThrottleWord.START if self.may_start() else ThrottleWord.GONE
        return word

    def _begin(self, entry: Entry) -> Generator[Command[Any] | float, Any, Entry | None]:
        begun = yield self.store.begin(self.owner, entry.text)
        return parse_entry(begun) if begun and self.may_start() else None


def take_steps(steps: Steps, take: Callable[[Command[Any] | float], Any]) -> MayStart:
    """Take the steps to a start, each by a call that blocks. Raises what that raises."""
    answer = None
    try:
        while True:
            answer = take(steps.send(answer))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # it is what the generator returns
