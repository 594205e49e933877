"""The options of a task, including its rate: their defaults, their checks, and which options override which."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypedDict

from rota.display_text import quoted
from rota.durations import Duration, not_negative_seconds, positive_seconds
from rota.errors import InvalidName
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.protocol.keys import fault_in_name, fault_in_queue_name
from rota.protocol.tiers import MOST_CRASHES

if TYPE_CHECKING:
    from rota.child.child_settings import TaskOverride
    from rota.tasks.periodic import Periodic

BURST_SECONDS: Final = 0.1
_RATE: Final = re.compile(r"([0-9]{1,9})/(s|m|h)", re.ASCII)
_MICROSECONDS: Final = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


class Rate(NamedTuple):
    """A rate limit. There are at least `interval_us` microseconds between two starts, except that up to `burst` tasks
    may start at once after a pause."""

    interval_us: int
    burst: int


NO_RATE: Final = Rate(0, 1)


def parse_rate(text: str) -> Rate:
    """Parse a rate of the form "COUNT/s", "COUNT/m" or "COUNT/h". Raises ValueError, with the expected form in the
    message, if the text has another form.

    Starts are spread evenly, except that all starts that are permitted in a tenth of a second may happen at once. So
    tasks with a rate such as "5000/s" can be claimed in batches. The starts in one second never exceed the rate by more
    than 10 %.
    """
    match = _RATE.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f'expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got {quoted(text)}')
    unit = _MICROSECONDS[match[2]]
    count = int(match[1])
    return Rate(max(1, round(unit / count)), max(1, int(count * BURST_SECONDS * 1_000_000 / unit)))


def check_rate(value: object, what: str = "rate") -> Rate | None:
    """Return the rate for a value of the option `rate` of `@rota.task`, or None for no rate. Raises TypeError or
    ValueError if the value is not valid."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a string such as "10/s", got {value!r}')
    try:
        return parse_rate(value)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def check_rate_key(value: object, what: str = "rate_key") -> str:
    """Return the value if it is a valid rate key: a text with the names of parameters in braces, for example
    "{account}". Raises TypeError or ValueError if it is not valid."""
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a string such as "{{account}}", got {value!r}')
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{what}: {error} in {value!r}; for a literal brace, write {{{{") from None
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion or not name.isidentifier()):
            raise ValueError(f"{what}: braces must contain the name of a parameter and nothing else, got {value!r}")
    if not parameters_in(value):
        example = value if value.isidentifier() else "account"
        raise ValueError(f'{what} must name a parameter in braces, as in {what}="{{{example}}}", got {value!r}')
    return value


def parameters_in(rate_key: str) -> list[str]:
    """Return the names of parameters in a rate key, for example `["account"]` for "{account}"."""
    return [name for _, name, _, _ in Formatter().parse(rate_key) if name is not None]


def key_of(rate_key: str, arguments: Mapping[str, Any]) -> str:
    """Return the rate key with the values of the arguments filled in. Starts are counted separately for each resulting
    text. `arguments` maps parameter names to arguments."""
    return rate_key.format_map(arguments)


OPTIONS_OF_A_CALL: Final = ("retries", "expires", "result_ttl")
"""The options that the `options` object of a body may contain."""
_NAMED_OPTIONS: Final = 5

Backoff = Literal["exponential", "linear"] | Callable[[int], float | timedelta]
Unique = bool | Callable[..., object]
Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class ScheduleArguments(TypedDict, total=False):
    """The arguments of `@rota.task` that make a task periodic."""

    cron: str  # a cron expression, for example "0 3 * * *"
    timezone: str  # the time zone of `cron`, by default UTC
    every: Duration  # an interval
    schedules: "Sequence[Periodic]"  # several schedules, or schedules with arguments


class TaskArguments(ScheduleArguments, total=False):
    """The keyword arguments of `@rota.task` besides `name`. See `TaskOptions`. Durations are seconds or timedelta."""

    queue: str
    retries: int
    backoff: Backoff
    base: Duration
    max_delay: Duration
    jitter: bool
    retry_on: Exceptions
    dead_on: Exceptions
    crash_limit: int | None
    time_limit: Duration | None
    soft_time_limit: Duration | None
    expires: Duration | None
    unique: Unique
    unique_for: Duration | None
    result_ttl: Duration
    remember: bool
    rate: str | None
    rate_key: str
    pydantic: bool


_PERIODIC: Final = tuple(ScheduleArguments.__annotations__)


def check_retries(value: object, what: str = "retries") -> int:
    """Return the value if it is a valid number of retries. Raises TypeError or ValueError if it is not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, got {value!r}")
    if value < 0:
        raise ValueError(f"{what} must be 0 or more, got {value}")
    return value


def _crash_limit(value: object, what: str) -> int | None:
    if value is None:
        return None
    checked = check_retries(value, what)
    if checked > MOST_CRASHES:
        raise ValueError(f"{what} must be {MOST_CRASHES} or less, got {value}")
    return checked


def check_queue(value: str, what: str = "queue") -> str:
    """Return the value if it is a valid queue name. Raises InvalidName if it is not."""
    fault = fault_in_queue_name(value) if isinstance(value, str) else f"{what} must be a string, got {value!r}"
    if fault:
        raise InvalidName(fault)
    return value


def require_name(what: str, text: str) -> str:
    """Return the text if it is a valid task name, id or namespace. Raises InvalidName if it is not. `what` is the noun
    for the text in the error message."""
    fault = fault_in_name(what, text) if isinstance(text, str) else f"{what} must be a string, got {text!r}"
    if fault:
        raise InvalidName(fault)
    return text


def check_unique(value: object, what: str = "unique") -> Unique:
    """Return the value if it is a valid `unique` option: True, False, or a callable that makes the key from the task's
    arguments. Raises TypeError for anything else."""
    if isinstance(value, bool) or callable(value):
        return value
    raise TypeError(f"{what} must be True, False or a callable that returns the key, got {value!r}")


def _backoff(value: object, what: str) -> Backoff:
    if value == "exponential" or value == "linear" or callable(value):  # noqa: PLR1714 - mypy narrows only this form
        return value
    raise ValueError(
        f'{what} must be "exponential", "linear" or a callable that takes the number of failures, got {value!r}'
    )


def check_boolean(value: object, what: str) -> bool:
    """Return the value if it is True or False. Raises TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, got {value!r}")
    return value


def _exceptions(value: Any, what: str) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(f"{what} must be an exception class or a tuple of them, {_instead(value, one, what)}")
    return classes


def _instead(value: Any, wrong: Any, what: str) -> str:
    if not isinstance(value, list | set | frozenset):
        return f"got {wrong!r}"
    names = "".join(f"{getattr(one, '__name__', repr(one))}, " for one in value)
    return f"got a {type(value).__name__}: use {what}=({names.removesuffix(' ' if len(value) == 1 else ', ')})"


def _optional_duration(value: Any, what: str) -> float | None:
    return None if value is None else positive_seconds(value, what)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a task, each with the function that checks it. Durations are in seconds.

    If `crash_limit` or `time_limit` is None, the configuration of the fleet applies: `restarts.crash_limit` (default 3)
    and `limits.time_limit_seconds` (default 3600).
    """

    # The queue that the task is enqueued on, unless a call names another queue.
    # Default: "default".
    queue: Annotated[str, check_queue] = "default"

    # How often a failed task is retried. With 10 retries, there are at most 11 attempts. Then the task is set aside as
    # dead. Crashes are counted separately.
    # Default: 10 retries.
    retries: Annotated[int, check_retries] = 10

    # How the delay before a retry grows with the number of failures n: "exponential" is `base * 2 ** (n - 1)`, "linear"
    # is `base * n`, and a function takes n and returns a duration. A function that fails or returns no duration makes
    # the task dead.
    # Default: "exponential".
    backoff: Annotated[Backoff, _backoff] = "exponential"

    # The delay from which `backoff` starts. A backoff function does not use it.
    # Default: 2 seconds.
    base: Annotated[float, not_negative_seconds] = 2.0

    # The longest delay before a retry. It does not limit the delay of `rota.Retry`.
    # Default: 3600 seconds.
    max_delay: Annotated[float, not_negative_seconds] = 3600.0

    # Whether the delay is multiplied by a random number from 0 to 1, so that tasks that failed together are not all
    # retried together. A delay from a backoff function or from `rota.Retry` is used as it is.
    # Default: True.
    jitter: Annotated[bool, check_boolean] = True

    # The exceptions that are retried. The task is dead at once if it raises another exception.
    # Default: every Exception.
    retry_on: Annotated[tuple[type[BaseException], ...], _exceptions] = (Exception,)

    # The exceptions after which the task is dead at once, even if `retry_on` lists them.
    # Default: none.
    dead_on: Annotated[tuple[type[BaseException], ...], _exceptions] = ()

    # The number of crashes of its worker, for example for lack of memory, after which the task is dead. With 0, the
    # task is started at most once: if that attempt does not end the task, the task is dead.
    # Default: None, the limit that is configured for the fleet.
    crash_limit: Annotated[int | None, _crash_limit] = None

    # The time after which the worker of an attempt is killed.
    # Default: None, the limit that is configured for the fleet.
    time_limit: Annotated[float | None, _optional_duration] = None

    # The time after which TimeLimit is raised in an attempt. It has no effect unless it is shorter than the time limit.
    # Default: None, no soft limit.
    soft_time_limit: Annotated[float | None, _optional_duration] = None

    # How late the task may start after it was due. If it would start later, it is not started and ends as expired.
    # Default: None, it never expires.
    expires: Annotated[float | None, _optional_duration] = None

    # Whether only one live task may exist with these arguments, or with the key that a function makes from them. A
    # second task is not enqueued, and its handle has `duplicate` set.
    # Default: False.
    unique: Annotated[Unique, check_unique] = False

    # The longest time that the unique key is held, counted from the enqueue. The end of the task frees it earlier.
    # Default: None, until the task has ended.
    unique_for: Annotated[float | None, _optional_duration] = None

    # How long the value that the function returns is stored.
    # Default: 0, it is not stored.
    result_ttl: Annotated[float, not_negative_seconds] = 0.0

    # Whether the fleet remembers how the task ended, so that `rota.status` can report it.
    # Default: True.
    remember: Annotated[bool, check_boolean] = True

    # How often the task may start in the whole fleet, for example "100/m". A task that exceeds the rate is delayed.
    # Default: None, no such limit.
    rate: Annotated[Rate | None, check_rate] = None

    # The rate is counted separately for each value of this text, with the task's arguments filled in, for example
    # "{account}".
    # Default: "", one rate for the whole task.
    rate_key: Annotated[str, check_rate_key] = ""

    # Whether pydantic checks and converts all arguments and the result.
    # Default: False, only arguments and results whose annotations need it are converted.
    pydantic: Annotated[bool, check_boolean] = False

    @property
    def is_started_once(self) -> bool:
        """Whether the task is never started a second time, even if its worker dies during the only attempt."""
        return self.crash_limit == 0


_CHECKS: Final = {name: kind.__metadata__[0] for name, kind in TaskOptions.__annotations__.items()}


def check_options(given: TaskArguments) -> TaskOptions:
    """Check the arguments of the decorator and fill in the defaults. Arguments that declare schedules are checked in
    `rota.tasks.periodic` instead.

    Raises InvalidName if the queue's name is not valid, and TypeError or ValueError with the option's name if another
    option is not valid.
    """
    if unknown := sorted(set(given).difference(_CHECKS, _PERIODIC)):
        raise TypeError(
            fault_in_option(unknown[0], "@rota.task", FOREIGN_NAMES["declaration"], ("name", *_CHECKS, *_PERIODIC))
        )
    values: dict[str, Any] = {name: _CHECKS[name](value, name) for name, value in given.items() if name in _CHECKS}
    options = TaskOptions(**values)
    soft = options.soft_time_limit
    hard = options.time_limit
    if soft is not None and hard is not None and soft >= hard:
        raise ValueError(f"soft_time_limit ({soft:g} s) must be shorter than time_limit ({hard:g} s)")
    if options.unique_for is not None and not options.unique:
        raise ValueError("unique_for has no effect without unique=True: pass both")
    if options.rate_key and options.rate is None:
        raise ValueError('rate_key has no effect without a rate: pass both, as in rate="10/s"')
    return options


def effective_options(
    options: TaskOptions, override: "TaskOverride | None", enqueued: Mapping[str, Any]
) -> TaskOptions:
    """Return the options in force for one task. The table `[tasks.NAME]` of the configuration overrides the
    declaration, and the options with which the task was enqueued override both.

    `enqueued` comes from a body that any program may have written, so a value of the wrong type is ignored.
    """
    changes: dict[str, Any] = {}
    if override is not None:
        changes = {_OVERRIDES[name]: value for name, value in asdict(override).items() if value is not None}
        if "rate" in changes:
            changes["rate"] = parse_rate(changes["rate"]) if changes["rate"] else None
    for name in OPTIONS_OF_A_CALL:
        try:
            changes[name] = _CHECKS[name](enqueued[name], name)
        except (KeyError, TypeError, ValueError):
            continue
    return replace(options, **changes) if changes else options


def fault_in_options(enqueued: Mapping[str, Any]) -> str | None:
    """Return an error message if a body has unknown options, or None if all options are known. An unknown option is an
    error, because it may be a misspelt one that should have had an effect."""
    unknown = sorted(set(enqueued).difference(OPTIONS_OF_A_CALL))
    if not unknown:
        return None
    named = ", ".join(map(repr, unknown[:_NAMED_OPTIONS]))
    return f"unknown options: {named}; a body may have the options {', '.join(OPTIONS_OF_A_CALL)}"


_OVERRIDES = {
    "retries": "retries",
    "crash_limit": "crash_limit",
    "time_limit_seconds": "time_limit",
    "soft_time_limit_seconds": "soft_time_limit",
    "max_delay_seconds": "max_delay",
    "rate": "rate",
}
