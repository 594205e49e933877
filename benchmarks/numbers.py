"""Medians, quantiles and ratios: what becomes of measured numbers. No I/O."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

KEPT = 300
Values = dict[str, Any]  # by name: a float, a list of floats, or None for what never came


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender showed in one round of one measurement."""

    measure: str
    round: int
    contender: str
    values: Values


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest."""

    middle: float
    low: float
    high: float


def spread(numbers: Sequence[float]) -> Spread | None:
    """The spread of numbers; None of none."""
    return Spread(statistics.median(numbers), min(numbers), max(numbers)) if numbers else None


def quantile(numbers: Iterable[float], share: float) -> float:
    """The smallest number that at least this share of them does not exceed."""
    ordered = sorted(numbers)
    return ordered[max(0, -(-round(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]


def summary(prefix: str, numbers: Sequence[float]) -> Values:
    """p50, p99 and the most of a list, and at most 300 of it, evenly chosen by rank."""
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
    """A number for people."""
    return "-" if value is None else f"{value:,.{digits}f}"


def read_results(recorded: dict[str, Any]) -> list[Result]:
    """The numbers of a recorded run."""
    return [Result(**one) for one in recorded["results"]]


def of(results: Iterable[Result], measure: str, contender: str, key: str) -> dict[int, float]:
    """The numbers of one contender by round; rounds in which it has none are left out."""
    return {
        one.round: one.values[key]
        for one in results
        if (one.measure, one.contender) == (measure, contender) and one.values.get(key) is not None
    }


def ratios(numbers: dict[int, float], references: dict[int, float]) -> list[float]:
    """Each number over the reference of the same round, so that what disturbs a round disturbs both."""
    return [number / references[turn] for turn, number in numbers.items() if references.get(turn)]


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The order of a round: each begins once."""
    if not names:
        return []
    first = turn % len(names)
    return [*names[first:], *names[:first]]
