"""Medians, quantiles and ratios of measured numbers. This module does no I/O."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

KEPT = 300
Values = dict[str, Any]  # each value is a float, a list of floats, or None for an event that did not happen


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one contender in one round of one measurement."""

    measure: str
    round: int
    contender: str
    values: Values


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of some numbers."""

    middle: float
    low: float
    high: float


def spread(numbers: Sequence[float]) -> Spread | None:
    """Return the spread of the numbers, or None if there are no numbers."""
    return Spread(statistics.median(numbers), min(numbers), max(numbers)) if numbers else None


def quantile(numbers: Iterable[float], share: float) -> float:
    """Return a quantile: the smallest of the numbers for which at least this share of all numbers is not higher."""
    ordered = sorted(numbers)
    return ordered[max(0, -(-round(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]


def summary(prefix: str, numbers: Sequence[float]) -> Values:
    """Return p50, p99 and the maximum of the numbers, and a sample of at most 300 numbers with evenly spaced ranks. The
    names of these values begin with `prefix`.
    """
    ordered = sorted(numbers)
    steps = min(len(ordered), KEPT)
    kept = [ordered[(rank + 1) * len(ordered) // steps - 1] for rank in range(steps)]
    return {
        f"{prefix}_p50": quantile(numbers, 0.5),
        f"{prefix}_p99": quantile(numbers, 0.99),
        f"{prefix}_max": max(numbers),
        f"{prefix}_all": [round(number, 3) for number in kept],
    }


def shown(value: float | None, digits: int) -> str:
    """Return a number as text with this number of decimal places, or "-" for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def read_results(recorded: dict[str, Any]) -> list[Result]:
    """Return the results of a recorded run."""
    return [Result(**one) for one in recorded["results"]]


def of(results: Iterable[Result], measure: str, contender: str, key: str) -> dict[int, float]:
    """Return the value `key` of a contender in each round. Rounds without this value are omitted."""
    return {
        one.round: one.values[key]
        for one in results
        if (one.measure, one.contender) == (measure, contender) and one.values.get(key) is not None
    }


def ratios(numbers: dict[int, float], references: dict[int, float]) -> list[float]:
    """Return each number divided by the number of the reference in the same round. Other work on the machine affects
    both numbers alike, and hardly affects their ratio.
    """
    return [number / references[turn] for turn, number in numbers.items() if references.get(turn)]


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """Return the names in the order for round `turn`. In each round, a different contender comes first."""
    if not names:
        return []
    first = turn % len(names)
    return [*names[first:], *names[:first]]
