"""The declaration of a schedule, the checks of its values, and the text that stores it in Redis. Times are whole
microseconds of Unix time.

The text is a strict JSON object. Equal schedules have equal texts. The text contains neither default values nor the
schedule's name, which is the field of the hash in Redis.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from rota.durations import MAX_SECONDS, MICROSECONDS
from rota.protocol.body import encode_json, refuse_constant
from rota.protocol.keys import fault_in_name, fault_in_queue_name
from rota.protocol.signatures import without_signature

Missed = Literal["last", "all", "none"]
Overlap = Literal["skip", "queue"]
Source = Literal["code", "file", "client"]

# Limited, because the id of an occurrence's task consists of the schedule's name and the time.
MOST_NAME_CHARACTERS: Final = 100
MOST_ARGUMENT_BYTES: Final = 65_536
MOST_JITTER_US: Final = 86_400 * MICROSECONDS
SHORTEST_INTERVAL_US: Final = MICROSECONDS
LONGEST_INTERVAL_US: Final = int(MAX_SECONDS) * MICROSECONDS
_LATEST_US: Final = int(2 * MAX_SECONDS) * MICROSECONDS


@dataclass(frozen=True, slots=True)
class CronRule:
    """The times of a cron expression, in a time zone."""

    expression: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class EveryRule:
    """The multiples of an interval, counted from the schedule's start, or from 1970-01-01 00:00 UTC if there is no
    start. So all nodes compute the same times, no matter when the nodes were started."""

    interval_us: int


Rule = CronRule | EveryRule


@dataclass(frozen=True, slots=True)
class Schedule:
    """The declaration of a task that is enqueued periodically with the same arguments."""

    name: str
    task: str
    rule: Rule
    queue: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    # Which of the occurrences that were missed while no fleet ran are enqueued later: the last, all (at most the last
    # 1,000), or none.
    missed: Missed = "last"
    # What to do with an occurrence if the previous one has not ended: skip it or enqueue it.
    overlap: Overlap = "skip"
    jitter_us: int = 0  # the longest random delay of each occurrence
    start_us: int | None = None  # there is no occurrence before this time
    end_us: int | None = None  # there is no occurrence at or after this time
    source: Source = "code"

    def __post_init__(self) -> None:
        """Check the values. Raises BadSchedule with all faults."""
        if faults := tuple(_faults(self)):
            raise BadSchedule(faults)


class BadSchedule(ValueError):
    """Raised for values that are not a valid schedule. `faults` has a pair for each fault: the name of the value, and
    what is wrong with it. The message describes the first fault."""

    def __init__(self, faults: tuple[tuple[str, str], ...]) -> None:
        super().__init__(faults[0][1])
        self.faults = faults


def fault_in_schedule_name(name: str) -> str | None:
    """Return a description of what is wrong with the name of a schedule, or None if the name is valid."""
    return fault_in_name("the name of a schedule", name, MOST_NAME_CHARACTERS)


def _faults(schedule: Schedule) -> Iterator[tuple[str, str]]:
    faults = (
        ("name", fault_in_schedule_name(schedule.name)),
        ("task", fault_in_name("task name", schedule.task)),
        ("queue", fault_in_queue_name(schedule.queue)),
        ("args", _fault_in_size(schedule)),
        *_faults_in_rule(schedule.rule),
        ("missed", _fault_in_choice("missed", schedule.missed, get_args(Missed))),
        ("overlap", _fault_in_choice("overlap", schedule.overlap, get_args(Overlap))),
        ("source", _fault_in_choice("source", schedule.source, get_args(Source))),
        ("jitter", _fault_in_jitter(schedule)),
        ("end", _fault_in_span(schedule.start_us, schedule.end_us)),
    )
    return ((what, fault) for what, fault in faults if fault)


def _faults_in_rule(rule: Rule) -> Iterator[tuple[str, str | None]]:
    if isinstance(rule, EveryRule):
        fits = SHORTEST_INTERVAL_US <= rule.interval_us <= LONGEST_INTERVAL_US
        yield (
            "every",
            None if fits else f"every must be from 1 second to 100 years, got {rule.interval_us / MICROSECONDS:g} s",
        )
        return
    # Imported here, because this module loads libraries that a program without cron expressions does not need.
    from rota.schedules.cron import fault_in_cron, fault_in_timezone  # noqa: PLC0415

    yield "cron", fault_in_cron(rule.expression)
    yield "timezone", fault_in_timezone(rule.timezone)


def _fault_in_size(schedule: Schedule) -> str | None:
    # The size of the arguments is limited, because a node sends its declarations with every heartbeat. Another check,
    # in the declaration of the schedule, ensures that the arguments are JSON.
    if schedule.source == "client":
        return None
    try:
        size = len(encode_json([list(schedule.args), dict(schedule.kwargs)]))
    except (TypeError, ValueError, RecursionError):
        return None
    if size <= MOST_ARGUMENT_BYTES:
        return None
    return (
        f"the arguments have {size:,} bytes, but the limit is {MOST_ARGUMENT_BYTES:,}: "
        "store them elsewhere and pass a reference to them"
    )


def _fault_in_choice(what: str, value: str, choices: tuple[str, ...]) -> str | None:
    named = " or ".join(f'"{choice}"' for choice in choices)
    return None if value in choices else f"{what} must be {named}, got {value!r}"


def _fault_in_jitter(schedule: Schedule) -> str | None:
    if not 0 <= schedule.jitter_us <= MOST_JITTER_US:
        return f"jitter must be from 0 seconds to one day, got {schedule.jitter_us / MICROSECONDS:g} s"
    if isinstance(schedule.rule, EveryRule) and schedule.jitter_us > schedule.rule.interval_us:
        return "jitter must be no longer than the interval, because occurrences could overtake each other"
    return None


def _fault_in_span(start_us: int | None, end_us: int | None) -> str | None:
    given = [instant for instant in (start_us, end_us) if instant is not None]
    if not all(0 <= instant <= _LATEST_US for instant in given):
        return "start and end must be between the years 1970 and 2170"
    if start_us is not None and end_us is not None and end_us <= start_us:
        return "end must be after start"
    return None


_NEEDED = ("task", "queue")
_DEFAULTS: dict[str, Any] = {
    field.name: {} if field.name == "kwargs" else field.default
    for field in dataclasses.fields(Schedule)
    if field.name not in ("name", "rule", *_NEEDED)
}
_TYPES: dict[str, tuple[type, ...]] = {
    "task": (str,),
    "queue": (str,),
    "cron": (str,),
    "timezone": (str,),
    "every_us": (int,),
    "args": (list,),
    "kwargs": (dict,),
    "missed": (str,),
    "overlap": (str,),
    "jitter_us": (int,),
    "start_us": (int,),
    "end_us": (int,),
    "source": (str,),
}


def encode_schedule(schedule: Schedule) -> bytes:
    """Return the text that Redis stores for a schedule. Raises ValueError, TypeError or RecursionError if its arguments
    are not JSON."""
    values: dict[str, Any] = {name: getattr(schedule, name) for name in _NEEDED}
    values.update(_values_of_rule(schedule.rule))
    given = {name: getattr(schedule, name) for name in _DEFAULTS}
    values.update({name: value for name, value in given.items() if value != _DEFAULTS[name]})
    return encode_json(values)


def _values_of_rule(rule: Rule) -> dict[str, Any]:
    match rule:
        case CronRule(expression, "UTC"):
            return {"cron": expression}
        case CronRule(expression, timezone):
            return {"cron": expression, "timezone": timezone}
        case EveryRule(interval_us):
            return {"every_us": interval_us}


def decode_schedule(name: str, text: bytes) -> Schedule:
    """Read the text of a schedule, with or without a signature, which is not verified. Raises ValueError if
    `encode_schedule` cannot have written it."""
    try:
        values = json.loads(without_signature(text), parse_constant=refuse_constant)
        # Check that the arguments can be enqueued. For example, JSON with a lone surrogate can be decoded but not
        # encoded again.
        encode_json(values)
    except RecursionError:
        raise ValueError("not a schedule: the JSON is nested too deeply") from None
    _check_types(values)
    rule = _rule_of(values)
    args = tuple(values.pop("args", ()))
    return Schedule(name, values.pop("task"), rule, values.pop("queue"), args, **values)


def _check_types(values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError("not a schedule: it is not an object")  # noqa: TRY004 - the fault is in a text
    for key, value in values.items():
        if key not in _TYPES:
            raise ValueError(f"not a schedule: unknown key {key[:50]!r}")
        if type(value) not in _TYPES[key]:
            raise ValueError(f"not a schedule: {key} is of the wrong type")
    if missing := [key for key in _NEEDED if key not in values]:
        raise ValueError(f"not a schedule: {missing[0]} is missing")


def _rule_of(values: dict[str, Any]) -> Rule:
    expression = values.pop("cron", None)
    interval_us = values.pop("every_us", None)
    timezone = values.pop("timezone", "UTC")
    if (expression is None) == (interval_us is None):
        raise ValueError("not a schedule: it must have either cron or every_us")
    if expression is not None:
        return CronRule(expression, timezone)
    return EveryRule(interval_us)
