"""Measures how the cost of a task depends on the number of waiting tasks, workers or queues. Only Rota is measured. At
each point, a fixed number of tasks is drained several times while all others keep waiting, and the time per task is
measured. On the axes `named` and `pattern`, many queues have work at once, and the server time of a claim is measured
instead. Points are measured in rounds, in rotated order.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.claim_cost import microseconds_a_claim
from benchmarks.contenders.rota import ROTA, Rota
from benchmarks.effort import Effort
from benchmarks.numbers import Result, rotated
from benchmarks.rounds import Failure, say
from benchmarks.running import Running, running
from benchmarks.testbed import Failed, Testbed, wait_until

NAME = "growth"
_CHUNKS = 5
# How many tasks may run in addition to the measured ones while the queues are paused and resumed. Queues are paused one
# after the other, so this maximum grows with their number.
_BEYOND_TASKS = 2000
_BEYOND_TASKS_A_QUEUE = 100
_BEYOND_TASKS_A_WORKER = 400  # the tasks of two claims, which a worker may hold when the queues are paused
_FAR_SECONDS = 86_400.0
_MOST_SECONDS = 60.0
_MOST_NAMED = 1000  # a tier that names more queues is not realistic


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the measurement: a value on one axis. The axes are the number of waiting tasks (`depth`), delayed
    tasks (`delayed`), workers (`workers`) and queues (`queues`), and the number of queues with work that are named in a
    tier (`named`) or match a pattern (`pattern`).
    """

    axis: str
    value: int

    @property
    def key(self) -> str:
        """The name of the point, for example `depth 1000`. A result has the values of all points by these names."""
        return f"{self.axis} {self.value}"


def points(effort: Effort) -> list[Point]:
    """Return all points of a profile."""
    axes = {
        "depth": effort.depths,
        "delayed": effort.depths,
        "workers": effort.worker_counts,
        "queues": effort.queue_counts,
        "named": tuple(count for count in effort.busy_queue_counts if count <= _MOST_NAMED),
        "pattern": effort.busy_queue_counts,
    }
    return [Point(axis, value) for axis, values in axes.items() for value in values]


def run_growth(testbed: Testbed, effort: Effort) -> Iterator[Result | Failure]:
    """Measure every point in every round."""
    known = {point.key: point for point in points(effort)}
    for turn in range(effort.rounds_of(NAME)):
        for key in rotated(list(known), turn):
            yield _run_point(known[key], testbed, effort, turn)


def _run_point(point: Point, testbed: Testbed, effort: Effort, turn: int) -> Result | Failure:
    began = time.monotonic()
    try:
        found = _measure(point, testbed, effort)
    except Failed as failure:
        say(f"  {NAME} {turn + 1}: {point.key}: FAILED: {failure}")
        return Failure(NAME, turn, f"rota, {point.key}", str(failure))
    middle = statistics.median(found)
    say(f"  {NAME} {turn + 1}: {point.key}: {middle:.1f} us per task  [{time.monotonic() - began:.0f} s]")
    return Result(NAME, turn, "rota", {point.key: middle, f"{point.key} all": found})


def _measure(point: Point, testbed: Testbed, effort: Effort) -> list[float]:
    if point.axis in {"named", "pattern"}:
        return microseconds_a_claim(testbed, point.value, by_pattern=point.axis == "pattern")
    fleet = Rota("rota", ROTA.settings, "failures", "warning", queues=_of(point, "queues", 1))
    with running(fleet, testbed, _of(point, "workers", 2)) as run:
        return _microseconds_a_task(run, point, effort)


def _of(point: Point, axis: str, otherwise: int) -> int:
    return point.value if point.axis == axis else otherwise


def _microseconds_a_task(run: Running, point: Point, effort: Effort) -> list[float]:
    run.contender.hold(run)
    if delayed := _of(point, "delayed", 0):
        run.producer.pile("nothing", delayed, time.time() + _FAR_SECONDS)
    # The first drain warms up every worker.
    beyond = _BEYOND_TASKS + _BEYOND_TASKS_A_QUEUE * _of(point, "queues", 1)
    beyond += _BEYOND_TASKS_A_WORKER * _of(point, "workers", 2)
    waiting = (_CHUNKS + 1) * (effort.growth_tasks + beyond)
    run.producer.many("nothing", _of(point, "depth", 0) + waiting)
    return [_one_chunk(run, effort.growth_tasks) for _ in range(_CHUNKS + 1)][1:]


def _one_chunk(run: Running, count: int) -> float:
    """Let the fleet run about `count` tasks, and then hold the fleet again. Return the microseconds per task."""
    run.contender.let_go(run)
    before = _settled(run)
    started = time.perf_counter()
    wait_until(lambda: _settled(run) >= before + count, f"{count} tasks settled", _MOST_SECONDS)
    settled = _settled(run) - before
    seconds = time.perf_counter() - started
    run.contender.hold(run)
    return seconds / settled * 1e6


def _settled(run: Running) -> int:
    return run.contender.settled(run.testbed) or 0


def table(results: list[Result], effort: Effort) -> str:
    """Return a line for each point, with the time per task and its ratio to the first point of the axis in the same
    round."""
    lines = ["growth: time per empty task, with 2 workers and 1 queue unless they grow; named, pattern: time per claim"]
    first: dict[str, Point] = {}
    for point in points(effort):
        first.setdefault(point.axis, point)
        lines += _line(results, point, first[point.axis])
    return "\n".join(lines)


def _line(results: list[Result], point: Point, first: Point) -> list[str]:
    by_round = {one.round: one.values for one in results if one.measure == NAME and point.key in one.values}
    base = {one.round: one.values[first.key] for one in results if one.measure == NAME and first.key in one.values}
    if not by_round:
        return []
    middle = statistics.median(values[point.key] for values in by_round.values())
    ratios = [values[point.key] / base[turn] for turn, values in by_round.items() if turn in base]
    shown = f"  x {statistics.median(ratios):.2f}" if ratios else ""
    return [f"  {point.axis:10}{point.value:>10,}{middle:10.1f} us{shown}"]
