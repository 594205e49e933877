"""Rates as people write them: "100/m"."""

import re
from dataclasses import dataclass

from rota.redaction import quoted

_RATE = re.compile(r"([0-9]{1,9})/(s|m|h)", re.ASCII)
_MICROSECONDS = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
BURST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Rate:
    """`interval_us` microseconds from one start to the next, `burst` starts at once after a pause."""

    interval_us: int
    burst: int


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
