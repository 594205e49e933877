"""The text that Redis keeps of a schedule: a strict JSON object, the same from whoever writes the same schedule.

The name is not in it: it is the field of the hash. What has its default value is left out.
"""

import dataclasses
import json
from typing import Any, NoReturn

from rota.protocol.body import encode_json
from rota.schedules.schedule import CronRule, EveryRule, Rule, Schedule

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
    """Write a schedule. Raises ValueError, TypeError or RecursionError for arguments that are not JSON."""
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
    """Read what stands under a name. Raises ValueError for whatever `encode_schedule` does not write."""
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
        encode_json(values)  # a lone surrogate, say, could be read and never be enqueued
    except RecursionError:
        raise ValueError("not a schedule: it is nested too deep") from None
    _check_types(values)
    rule = _rule_of(values)
    args = tuple(values.pop("args", ()))
    return Schedule(name, values.pop("task"), rule, values.pop("queue"), args, **values)


def _check_types(values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError("not a schedule: no object")  # noqa: TRY004 - of a text, not of an argument
    for key, value in values.items():
        if key not in _TYPES:
            raise ValueError(f"not a schedule: nobody knows {key[:50]!r}")
        if type(value) not in _TYPES[key]:
            raise ValueError(f"not a schedule: {key} is of a wrong type")
    if missing := [key for key in _NEEDED if key not in values]:
        raise ValueError(f"not a schedule: {missing[0]} is missing")


def _rule_of(values: dict[str, Any]) -> Rule:
    expression, interval_us = values.pop("cron", None), values.pop("every_us", None)
    timezone = values.pop("timezone", "UTC")
    if (expression is None) == (interval_us is None):
        raise ValueError("not a schedule: it has one of cron and every_us")
    if expression is not None:
        return CronRule(expression, timezone)
    return EveryRule(interval_us)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
