"""The tables that a run prints. This module does no I/O."""

from collections.abc import Iterator, Sequence

from benchmarks.measures import Measure, Metric
from benchmarks.numbers import Result, Spread, of, ratios, shown, spread


def table(measure: Measure, names: Sequence[str], results: Sequence[Result]) -> str:
    """Return a table with a line for each contender and metric. A line has the median over all rounds, the range, and
    the ratio to the reference in the same round.
    """
    lines = [f"{measure.title}  (ratios to {measure.reference})"]
    lines += [line for metric in measure.metrics for line in _lines(measure, metric, names, results)]
    return "\n".join(lines)


def _lines(measure: Measure, metric: Metric, names: Sequence[str], results: Sequence[Result]) -> Iterator[str]:
    references = of(results, measure.name, measure.reference, metric.key)
    measured = {one.contender for one in results if one.measure == measure.name}
    for name in names:
        if name in measured:
            numbers = of(results, measure.name, name, metric.key)
            yield _line(metric, name, spread(list(numbers.values())), spread(ratios(numbers, references)))


def _line(metric: Metric, name: str, found: Spread | None, ratio: Spread | None) -> str:
    label = f"  {metric.title + ', ' + metric.unit:22} {name:16}"
    if found is None:
        return f"{label}{'not in time':>12}" if metric.key == "rerun_ms" else f"{label}{'-':>12}"
    low, middle, high = (shown(value, metric.digits) for value in (found.low, found.middle, found.high))
    factor = "" if ratio is None else f"  x {ratio.middle:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{label}{middle:>12}  {f'({low} to {high})':26}{factor}"
