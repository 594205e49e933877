"""How often something may start: rates as people write them, and whose starts a task's rate counts. Pure."""

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any, Final, NamedTuple

from rota.redaction import quoted

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
        raise ValueError(f"{what} names no parameter: without it there is one rate for all of the task's starts")
    return value


def parameters_in(rate_key: str) -> list[str]:
    """The names in braces."""
    return [name for _, name, _, _ in Formatter().parse(rate_key) if name is not None]


def key_of(rate_key: str, arguments: Mapping[str, Any]) -> str:
    """The value whose starts are counted, of arguments by their names."""
    return rate_key.format_map(arguments)
