"""`PYTHONPATH=tests python -m benchmarks.page [RESULT.json]`: generates the tables of docs/performance.md.

The text between `<!-- table: NAME -->` and `<!-- table: end -->` is replaced. The contenders are taken from the code,
and the numbers from a recorded run, by default benchmarks/results/reference.json.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.contender import EVERYTHING, ROOT, Contender
from benchmarks.contenders import CONTENDERS, rivals
from benchmarks.measures import MEASURES, Metric
from benchmarks.numbers import Result, of, read_results, shown

_FEW = 2  # if at most this many measurements are missing, these are listed, and otherwise the others
PAGE = ROOT / "docs" / "performance.md"
REFERENCE = ROOT / "benchmarks" / "results" / "reference.json"

# Each column of a table has a heading, a measurement, and the name of one of the numbers that this measurement yields.
Columns = Sequence[tuple[str, str, str]]
RATES: Columns = (
    ("drain, 1/s", "drain", "rate"),
    ("processor time per task, µs", "drain", "cpu_us"),
    ("10 ms: time in tasks, %", "work", "share"),
    ("enqueue, one per call, 1/s", "enqueue", "single"),
    ("500 per call, 1/s", "enqueue", "bulk"),
)
TIMES: Columns = (
    ("wake p50, ms", "wake", "wake_ms_p50"),
    ("p99", "wake", "wake_ms_p99"),
    ("lag p50, ms", "lag", "lag_ms_p50"),
    ("p99", "lag", "lag_ms_p99"),
    ("early", "lag", "early"),
    ("burst, last start, ms", "burst", "lag_ms_max"),
    ("killed: runs again, ms", "crash", "rerun_ms"),
    ("start to first task, ms", "start", "start_ms"),
)
UPKEEP: Columns = (
    ("idle, commands/s", "idle", "commands"),
    ("with those of scripts", "idle", "inside"),
    ("idle, % of a processor", "idle", "cpu_percent"),
    ("memory of a fleet of 8, per worker, MB", "memory", "pss_mb"),
    ("one more worker, MB", "memory", "uss_mb"),
)
AT_ONCE: Columns = (
    ("tasks that wait, 1/s", "waits", "rate"),
    ("processor time per task, µs", "waits", "cpu_us"),
    ("400/s: lag p50, ms", "steady", "lag_ms_p50"),
    ("p99", "steady", "lag_ms_p99"),
    ("process with 100 tasks, MB", "held", "uss_mb"),
    ("each task, kB", "held", "task_kb"),
)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def contenders(_results: Sequence[Result]) -> str:
    """Return the table of contenders, with their settings and the measurements that each supports."""
    rows = [(one.name, one.settings, _measured_in(one)) for one in CONTENDERS.values()]
    return _markdown(("contender", "set up as", "measured in"), rows)


def _measured_in(contender: Contender) -> str:
    missing = EVERYTHING - contender.measures
    more = contender.measures - EVERYTHING
    if len(missing) > _FEW:
        return _names(contender.measures)
    return "all" + (f" but {_names(missing)}" if missing else "") + (f", and {_names(more)}" if more else "")


def _names(measures: frozenset[str]) -> str:
    return ", ".join(name for name in MEASURES if name in measures)


def goals(results: Sequence[Result]) -> str:
    """Return the table of Rota's targets, with the results of the run."""
    shown_of = targets.findings(results, rivals({one.contender for one in results}))
    rows = [
        (target.text, f"{found:.3g} {target.unit}".rstrip(), target.goal, "" if target.is_kept(found) else "**missed**")
        for target, found in shown_of
    ]
    return _markdown(("", "found", "goal", ""), rows)


def _beside(columns: Columns) -> Callable[[Sequence[Result]], str]:
    """Return a function that makes a table with these columns. The table has a line for each contender with a result in
    at least one column.
    """

    def write(results: Sequence[Result]) -> str:
        rows = [(name, *(_cell(results, name, measure, key) for _, measure, key in columns)) for name in CONTENDERS]
        measured = [row for row in rows if any(row[1:])]
        return (
            _markdown(("", *(title for title, *_ in columns)), measured)
            if measured
            else "The run did not measure this."
        )

    return write


def _cell(results: Sequence[Result], name: str, measure: str, key: str) -> str:
    if (measure, name) not in {(one.measure, one.contender) for one in results}:
        return ""
    numbers = of(results, measure, name, key).values()
    if not numbers:
        return "not in time" if key == "rerun_ms" else "-"
    return shown(statistics.median(numbers), _metric(measure, key).digits)


def _metric(measure: str, key: str) -> Metric:
    return next(metric for metric in MEASURES[measure].metrics if metric.key == key)


TABLES: dict[str, Callable[[Sequence[Result]], str]] = {
    "contenders": contenders,
    "goals": goals,
    "rates": _beside(RATES),
    "times": _beside(TIMES),
    "upkeep": _beside(UPKEEP),
    "at once": _beside(AT_ONCE),
}
_TABLE = re.compile(r"(<!-- table: (?P<name>[\w ]+) -->\n).*?(<!-- table: end -->)", re.DOTALL)


def rewritten(page: str, recorded: dict[str, Any]) -> str:
    """Return the page with all tables generated again from the code and this run."""
    results = read_results(recorded)
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found['name']](results)}\n\n{found[3]}", page)


def names(page: str) -> Iterator[str]:
    """Yield the names of the tables on the page."""
    return (found["name"] for found in _TABLE.finditer(page))


def write(recorded_at: Path) -> None:
    """Generate the tables of the page again, from the run in this file."""
    PAGE.write_text(rewritten(PAGE.read_text(), json.loads(recorded_at.read_text())))


if __name__ == "__main__":
    write(Path(*sys.argv[1:2]) if sys.argv[1:] else REFERENCE)
