"""The options of a task: every default, once, and what overrides them in which order; rates as people write them."""

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
    """`interval_us` microseconds from one start to the next, `burst` starts at once after a pause."""

    interval_us: int
    burst: int


NO_RATE: Final = Rate(0, 1)


def parse_rate(text: str) -> Rate:
    """Read "COUNT/s", "COUNT/m" or "COUNT/h". Raises ValueError saying what is expected.

    Starts are spread evenly; a tenth of a second's worth may come at once, so that "5000/s" can be
    served in batches while no window of a second sees more than a tenth too many.
    """
    match = _RATE.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f'expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got {quoted(text)}')
    unit = _MICROSECONDS[match[2]]
    count = int(match[1])
    return Rate(max(1, round(unit / count)), max(1, int(count * BURST_SECONDS * 1_000_000 / unit)))


def check_rate(value: object, what: str = "rate") -> Rate | None:
    """A rate as `@rota.task` takes it; None for none. Raises TypeError or ValueError."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a text such as "10/s", got {value!r}')
    try:
        return parse_rate(value)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def check_rate_key(value: object, what: str = "rate_key") -> str:
    """A text with names of parameters in braces, and nothing else in those. Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a text such as "{{account}}", got {value!r}')
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{what}: {error} in {value!r}; write {{{{ for a brace") from None
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion or not name.isidentifier()):
            raise ValueError(f"{what}: in braces stands the name of a parameter and nothing else, got {value!r}")
    if not parameters_in(value):
        example = value if value.isidentifier() else "account"
        raise ValueError(f'{what} names a parameter in braces, as in {what}="{{{example}}}", got {value!r}')
    return value


def parameters_in(rate_key: str) -> list[str]:
    """The names in braces."""
    return [name for _, name, _, _ in Formatter().parse(rate_key) if name is not None]


def key_of(rate_key: str, arguments: Mapping[str, Any]) -> str:
    """The value whose starts are counted, of arguments by their names."""
    return rate_key.format_map(arguments)


OPTIONS_OF_A_CALL: Final = ("retries", "expires", "result_ttl")
"""What the `options` of a body may say."""
_NAMED_OPTIONS: Final = 5

Backoff = Literal["exponential", "linear"] | Callable[[int], float | timedelta]
Unique = bool | Callable[..., object]
Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class ScheduleArguments(TypedDict, total=False):
    """Those arguments of `@rota.task` that have a task enqueued periodically."""

    cron: str
    timezone: str
    every: Duration
    schedules: "Sequence[Periodic]"


class TaskArguments(ScheduleArguments, total=False):
    """The keyword arguments of `@rota.task` besides `name`. Durations are seconds or timedelta."""

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
    """A number of retries. Raises TypeError or ValueError."""
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
    """A queue's name. Raises InvalidName."""
    fault = fault_in_queue_name(value) if isinstance(value, str) else f"{what} must be a string, got {value!r}"
    if fault:
        raise InvalidName(fault)
    return value


def require_name(what: str, text: str) -> str:
    """A task's name, an id or a namespace; `what` is the word for it. Raises InvalidName."""
    fault = fault_in_name(what, text) if isinstance(text, str) else f"{what} must be a string, got {text!r}"
    if fault:
        raise InvalidName(fault)
    return text


def check_unique(value: object, what: str = "unique") -> Unique:
    """True, False, or a callable making the key from the task's arguments. Raises TypeError."""
    if isinstance(value, bool) or callable(value):
        return value
    raise TypeError(f"{what} must be True, False or a callable that makes the key, got {value!r}")


def _backoff(value: object, what: str) -> Backoff:
    if value == "exponential" or value == "linear" or callable(value):  # noqa: PLR1714 - mypy narrows only this form
        return value
    raise ValueError(f'{what} must be "exponential", "linear" or a callable taking the failures, got {value!r}')


def check_boolean(value: object, what: str) -> bool:
    """True or False. Raises TypeError."""
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
    return f"got a {type(value).__name__}: write {what}=({names.removesuffix(' ' if len(value) == 1 else ', ')})"


def _optional_duration(value: Any, what: str) -> float | None:
    return None if value is None else positive_seconds(value, what)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options as declared, each with the function that checks it. Durations in seconds.

    `retries` 10 means 11 attempts. `backoff`: see `retry`. `crash_limit`: a task that has killed its worker so often is
    dead; with 0 it is started once at most: if that start does not end it is dead. `time_limit` kills an attempt that
    runs longer. None is the fleet's in both (`restarts.crash_limit` and `limits.time_limit_seconds` of its
    configuration, 3 and 3600 unless it says otherwise).
    `soft_time_limit` raises TimeLimit in one that runs longer; one that is no shorter than the time limit is none.
    `expires`: how late it may start before it is not started at all. `unique`: at most one live task with these
    arguments, for its life or for `unique_for`. `result_ttl`: for how long what it returns is kept, 0 for not at all.
    `remember`: whether the fleet remembers how it ended. `rate`: how often it may start over the whole fleet, or with
    `rate_key`, how often for each value that this makes of its arguments; None for no such limit. `pydantic`: whether
    pydantic checks and converts all its arguments and its result.
    """

    queue: Annotated[str, check_queue] = "default"
    retries: Annotated[int, check_retries] = 10
    backoff: Annotated[Backoff, _backoff] = "exponential"
    base: Annotated[float, not_negative_seconds] = 2.0
    max_delay: Annotated[float, not_negative_seconds] = 3600.0
    jitter: Annotated[bool, check_boolean] = True
    retry_on: Annotated[tuple[type[BaseException], ...], _exceptions] = (Exception,)
    dead_on: Annotated[tuple[type[BaseException], ...], _exceptions] = ()
    crash_limit: Annotated[int | None, _crash_limit] = None
    time_limit: Annotated[float | None, _optional_duration] = None
    soft_time_limit: Annotated[float | None, _optional_duration] = None
    expires: Annotated[float | None, _optional_duration] = None
    unique: Annotated[Unique, check_unique] = False
    unique_for: Annotated[float | None, _optional_duration] = None
    result_ttl: Annotated[float, not_negative_seconds] = 0.0
    remember: Annotated[bool, check_boolean] = True
    rate: Annotated[Rate | None, check_rate] = None
    rate_key: Annotated[str, check_rate_key] = ""
    pydantic: Annotated[bool, check_boolean] = False

    @property
    def is_started_once(self) -> bool:
        """Whether it may be started once at most, as long as no start of it has ended."""
        return self.crash_limit == 0


_CHECKS: Final = {name: kind.__metadata__[0] for name, kind in TaskOptions.__annotations__.items()}


def check_options(given: TaskArguments) -> TaskOptions:
    """Check what a decorator was given and fill in the defaults; what makes the task periodic is left to
    `rota.tasks.periodic`.

    Raises InvalidName for the queue; TypeError or ValueError, naming the option, for the rest.
    """
    if unknown := sorted(set(given).difference(_CHECKS, _PERIODIC)):
        raise TypeError(
            fault_in_option(unknown[0], "@rota.task", FOREIGN_NAMES["declaration"], ("name", *_CHECKS, *_PERIODIC))
        )
    values: dict[str, Any] = {name: _CHECKS[name](value, name) for name, value in given.items() if name in _CHECKS}
    options = TaskOptions(**values)
    soft, hard = options.soft_time_limit, options.time_limit
    if soft is not None and hard is not None and soft >= hard:
        raise ValueError(f"soft_time_limit ({soft:g} s) must be shorter than time_limit ({hard:g} s)")
    if options.unique_for is not None and not options.unique:
        raise ValueError("unique_for says how long a task stays unique: give unique=True with it")
    if options.rate_key and options.rate is None:
        raise ValueError('rate_key says whose starts are counted: give a rate with it, as in rate="10/s"')
    return options


def effective_options(
    options: TaskOptions, override: "TaskOverride | None", enqueued: Mapping[str, Any]
) -> TaskOptions:
    """Options in force for one task: declared < the operator's `[tasks.NAME]` < those it was enqueued with.

    `enqueued` comes from the body, so from any producer: what is of a wrong type counts as not given.
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
    """Say which options of a body nobody knows, or None: one that was misspelt must not pass for the default."""
    unknown = sorted(set(enqueued).difference(OPTIONS_OF_A_CALL))
    if not unknown:
        return None
    named = ", ".join(map(repr, unknown[:_NAMED_OPTIONS]))
    return f"unknown options: {named}; the options of a body are {', '.join(OPTIONS_OF_A_CALL)}"


_OVERRIDES = {
    "retries": "retries",
    "crash_limit": "crash_limit",
    "time_limit_seconds": "time_limit",
    "soft_time_limit_seconds": "soft_time_limit",
    "max_delay_seconds": "max_delay",
    "rate": "rate",
}
