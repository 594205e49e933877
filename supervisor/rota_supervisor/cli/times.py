"""How durations and times are written on the command line."""

import re
from datetime import datetime
from typing import Final

import click

from rota.durations import seconds, unix_microseconds

_SECONDS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.ASCII)


class _Duration(click.ParamType):  # type: ignore[type-arg]  # older versions of click know no argument
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value).strip().lower())
        if not found or found[2] not in _SECONDS:
            negative = " and never negative" * str(value).startswith("-")
            self.fail(f"{value!r} is no duration: seconds, or a number with ms, s, m, h or d, as in 90, 1.5h{negative}")
        try:
            return seconds(float(found[1]) * _SECONDS[found[2]], "a duration")
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Moment(click.ParamType):  # type: ignore[type-arg]  # older versions of click know no argument
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            when = datetime.fromisoformat(str(value))
            unix_microseconds(when, str(value))
        except ValueError as error:
            zoned = "has no time zone" in str(error)
            lack = "has no time zone" if zoned else "is no time"
            self.fail(f"{value!r} {lack}: write it as 2027-01-31T09:00+01:00, or with Z for UTC", param, ctx)
        return when


DURATION: Final = _Duration()
"""Seconds, or a number with its unit, as seconds."""

MOMENT: Final = _Moment()
"""A time of ISO 8601 with its zone, as a datetime."""
