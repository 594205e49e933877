"""Rota's performance targets, and whether a run meets them. A target is a limit for a ratio between contenders, or for
one of Rota's own numbers. This module does no I/O.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.numbers import Result, of, ratios

AT_ONCE = "rota-c100"
LOGGING = "rota+log"
Found = float | None
Results = Sequence[Result]


@dataclass(frozen=True, slots=True)
class Rivals:
    """The names of the other systems in a run: all of them, and separately those in Python that run a task again if its
    process dies.
    """

    every: Sequence[str]
    python: Sequence[str]


Find = Callable[[Results, Rivals], Found]


@dataclass(frozen=True, slots=True)
class Target:
    """A performance target. `find` returns the value of a run that is compared with `limit`. If `at_least` is set, the
    limit is the lowest value that meets the target, and otherwise the highest.
    """

    text: str
    find: Find
    at_least: bool
    limit: float
    unit: str

    @property
    def goal(self) -> str:
        """The limit as text, for example `>= 4 x`."""
        return f"{'>=' if self.at_least else '<='} {self.limit:g} {self.unit}".rstrip()

    def is_kept(self, found: float) -> bool:
        """Whether the value meets the limit."""
        return found >= self.limit if self.at_least else found <= self.limit


def _middle(numbers: Iterable[float]) -> Found:
    found = list(numbers)
    return statistics.median(found) if found else None


def ratio(measure: str, key: str, reference: str, ours: str = "rota") -> Find:
    """Return a function that divides Rota's number by that of the reference in each round, and returns the median of
    these ratios.
    """

    def find(results: Results, _rivals: Rivals) -> Found:
        return _middle(ratios(of(results, measure, ours, key), of(results, measure, reference, key)))

    return find


def every(rivals: Rivals) -> Sequence[str]:
    """Return the names of all rivals."""
    return rivals.every


def python(rivals: Rivals) -> Sequence[str]:
    """Return the names of the Python rivals that run a task again if its process dies."""
    return rivals.python


def ratio_to_best(
    among: Callable[[Rivals], Sequence[str]], measure: str, key: str, ours: str = "rota", *, least: bool = False
) -> Find:
    """Return a function that finds the median ratio of Rota's number to the number of the best rival. The best rival is
    the one with the highest median, or with the lowest if `least` is set.
    """

    def find(results: Results, rivals: Rivals) -> Found:
        found = {name: of(results, measure, name, key) for name in among(rivals)}
        choose = min if least else max
        best = choose((numbers for numbers in found.values() if numbers), key=_median, default={})
        return _middle(ratios(of(results, measure, ours, key), best))

    return find


def _median(numbers: dict[int, float]) -> float:
    return statistics.median(numbers.values())


def number(measure: str, key: str) -> Find:
    """Return a function that finds the median of one of Rota's own numbers."""

    def find(results: Results, _rivals: Rivals) -> Found:
        return _middle(of(results, measure, "rota", key).values())

    return find


def steepest(*axes: str) -> Find:
    """Return a function that finds how much the cost of a task grows along these axes. It divides the cost at each
    point by the cost at the first point of the same axis, and returns the highest of these ratios.
    """

    def find(results: Results, _rivals: Rivals) -> Found:
        keys = dict.fromkeys(key for one in results if one.measure == "growth" for key in one.values)
        found = []
        for axis in axes:
            along = [key for key in keys if key.startswith(f"{axis} ") and not key.endswith("all")]
            first = min(along, key=lambda key: int(key.split()[1]), default="")
            found += [_middle(ratios(*(of(results, "growth", "rota", one) for one in (key, first)))) for key in along]
        return max((one for one in found if one is not None), default=None)

    return find


TARGETS = (
    Target("drain, relative to the classic loop", ratio("drain", "rate", "classic"), at_least=True, limit=4, unit="x"),
    Target(
        "drain with a log line per task, relative to the classic loop",
        ratio("drain", "rate", "classic", LOGGING),
        at_least=True,
        limit=2.5,
        unit="x",
    ),
    Target(
        "drain, relative to the best rival", ratio_to_best(every, "drain", "rate"), at_least=True, limit=3, unit="x"
    ),
    Target(
        "tasks of 10 ms: time in tasks, relative to workers that ping",
        ratio("work", "share", "pinging"),
        at_least=True,
        limit=0.99,
        unit="x",
    ),
    Target(
        "waits, 100 at once, relative to one at a time",
        ratio("waits", "rate", "rota", AT_ONCE),
        at_least=True,
        limit=20,
        unit="x",
    ),
    Target(
        "waits, 100 at once, relative to the best rival",
        ratio_to_best(every, "waits", "rate", AT_ONCE),
        at_least=True,
        limit=1,
        unit="x",
    ),
    Target(
        "steady, p99 of lag, relative to the best rival",
        ratio_to_best(every, "steady", "lag_ms_p99", AT_ONCE, least=True),
        at_least=False,
        limit=1,
        unit="x",
    ),
    Target(
        "enqueue, one per call, relative to a bare RPUSH loop",
        ratio("enqueue", "single", "raw"),
        at_least=True,
        limit=0.95,
        unit="x",
    ),
    Target(
        "enqueue, one per call, relative to the best at-least-once Python rival",
        ratio_to_best(python, "enqueue", "single"),
        at_least=True,
        limit=1,
        unit="x",
    ),
    Target(
        "enqueue, 500 per call, relative to the classic producer",
        ratio("enqueue", "bulk", "classic"),
        at_least=True,
        limit=1,
        unit="x",
    ),
    Target(
        "enqueue, 500 per call, relative to bee-queue",
        ratio("enqueue", "bulk", "bee-queue"),
        at_least=True,
        limit=1,
        unit="x",
    ),
    Target(
        "wake, p50, relative to the classic loop",
        ratio("wake", "wake_ms_p50", "classic"),
        at_least=False,
        limit=1.2,
        unit="x",
    ),
    Target(
        "wake, p50, relative to Sidekiq", ratio("wake", "wake_ms_p50", "sidekiq"), at_least=False, limit=1, unit="x"
    ),
    Target("lag, p50", number("lag", "lag_ms_p50"), at_least=False, limit=0.8, unit="ms"),
    Target("lag, p99", number("lag", "lag_ms_p99"), at_least=False, limit=2, unit="ms"),
    Target("lag: tasks that started early", number("lag", "early"), at_least=False, limit=0, unit=""),
    Target("burst of 2,000: last start", number("burst", "lag_ms_max"), at_least=False, limit=70, unit="ms"),
    Target(
        "lag at 70 % of the workers' capacity, p99",
        number("load", "lag_ms_p99_at_70"),
        at_least=False,
        limit=3,
        unit="ms",
    ),
    Target("idle, 8 workers: commands per second", number("idle", "commands"), at_least=False, limit=3, unit="1/s"),
    Target(
        "idle, 8 workers: commands per second, with those of scripts",
        number("idle", "inside"),
        at_least=False,
        limit=15,
        unit="1/s",
    ),
    Target(
        "idle, 8 workers: share of one processor", number("idle", "cpu_percent"), at_least=False, limit=0.2, unit="%"
    ),
    Target("memory of a fleet of 8, per worker", number("memory", "pss_mb"), at_least=False, limit=16, unit="MB"),
    Target("memory: one more worker", number("memory", "uss_mb"), at_least=False, limit=4.5, unit="MB"),
    Target("crash: the task runs again", number("crash", "rerun_ms"), at_least=False, limit=30, unit="ms"),
    Target("crash: the pool is complete", number("crash", "whole_ms"), at_least=False, limit=100, unit="ms"),
    Target("start: `rota run` to the first task", number("start", "start_ms"), at_least=False, limit=600, unit="ms"),
    Target(
        "growth with more ready tasks, delayed tasks or queues",
        steepest("depth", "delayed", "queues"),
        at_least=False,
        limit=1.2,
        unit="x",
    ),
    Target(
        "growth with more queues of a pattern that have work", steepest("pattern"), at_least=False, limit=1.2, unit="x"
    ),
)


def findings(results: Results, rivals: Rivals) -> Iterator[tuple[Target, float]]:
    """Yield each target for which the run has a value, with that value."""
    for target in TARGETS:
        if (shown := target.find(results, rivals)) is not None:
            yield target, shown


def table(results: Results, rivals: Rivals) -> str:
    """Return a line for each target for which the run has a value."""
    lines = [
        f"  {'yes' if target.is_kept(shown) else 'NO':4}{target.text:72}{shown:10.3g} {target.unit:4}{target.goal}"
        for target, shown in findings(results, rivals)
    ]
    return "\n".join(["targets", *lines]) if lines else "targets: this run measured none of them"
