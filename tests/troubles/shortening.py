"""The project's rules with all times shortened. Problems that take hours in production then become visible within
minutes.
"""

import re
from typing import Final

_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ONE: Final = r"\d+(?:ms|[smhdw])"
_DURATION: Final = rf"(?:{_ONE})+"
# The places where durations occur: the window of a range, the two parts of a subquery, an offset, and the times of a
# rule itself.
_TIMES: Final = re.compile(
    rf"(?<=\[){_DURATION}(?=[\]:])|(?<=:){_DURATION}(?=\])|(?<=\boffset ){_DURATION}"
    rf"|(?<=\bfor: ){_DURATION}|(?<=\binterval: ){_DURATION}|(?<=\bkeep_firing_for: ){_DURATION}"
)
# Matches a number of seconds with which an age is compared, as in `max by (job) (rota_quiet_age_seconds) > 60`. A
# factor is not matched.
_AGES: Final = re.compile(r"(_seconds(?:\{[^{}]*\})?[)\s]*[<>]=?\s*)(\d+(?:\.\d+)?)(?![\d.]*\s*[*/])\b")


def shortened(rules: str, by: float) -> str:
    """Return the text of a rule file in which each duration, and each age in a comparison, is divided by `by`."""

    def of_time(found: re.Match[str]) -> str:
        return f"{max(1, round(_milliseconds(found[0]) / by))}ms"

    def of_age(found: re.Match[str]) -> str:
        return f"{found[1]}{float(found[2]) / by:.6g}"

    return _AGES.sub(of_age, _TIMES.sub(of_time, rules))


def _milliseconds(duration: str) -> int:
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in re.findall(r"(\d+)(ms|[smhdw])", duration))
