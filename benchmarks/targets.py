"""What Rota sets itself, as ratios within one run or as numbers of it, and whether a run shows it. No I/O."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.numbers import Result, of, ratios

AT_ONCE = "rota-c100"
Found = float | None
Results = Sequence[Result]


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: what `of` finds in a run is to be at least (or at most) the limit."""

    text: str
    find: Callable[[Results, Sequence[str]], Found]
    at_least: bool
    limit: float
    unit: str

    def line(self, results: Results, peers: Sequence[str]) -> str | None:
        """What a run shows of it; None when it did not measure that."""
        found = self.find(results, peers)
        if found is None:
            return None
        kept = found >= self.limit if self.at_least else found <= self.limit
        sign = ">=" if self.at_least else "<="
        word = "yes" if kept else "NO"
        return f"  {word:4}{self.text:64}{found:10.3g} {self.unit:4}{sign} {self.limit:g}"


def _middle(numbers: Iterable[float]) -> Found:
    found = list(numbers)
    return statistics.median(found) if found else None


def ratio(measure: str, key: str, reference: str, ours: str = "rota") -> Callable[[Results, Sequence[str]], Found]:
    """Our number over the reference's of the same round."""

    def find(results: Results, _peers: Sequence[str]) -> Found:
        return _middle(ratios(of(results, measure, ours, key), of(results, measure, reference, key)))

    return find


def ratio_to_best_peer(
    measure: str, key: str, ours: str = "rota", *, less_is_better: bool = False
) -> Callable[[Results, Sequence[str]], Found]:
    """Our number over that of the peer with the best median."""
    best_of = min if less_is_better else max

    def find(results: Results, peers: Sequence[str]) -> Found:
        found = {name: of(results, measure, name, key) for name in peers}
        best = best_of((numbers for numbers in found.values() if numbers), key=_median, default={})
        return _middle(ratios(of(results, measure, ours, key), best))

    return find


def _median(numbers: dict[int, float]) -> float:
    return statistics.median(numbers.values())


def number(measure: str, key: str) -> Callable[[Results, Sequence[str]], Found]:
    """Rota's own number."""

    def find(results: Results, _peers: Sequence[str]) -> Found:
        return _middle(of(results, measure, "rota", key).values())

    return find


def steepest(*axes: str) -> Callable[[Results, Sequence[str]], Found]:
    """The most that a point of these axes of growth differs from the first of its axis, as a ratio above 1."""

    def find(results: Results, _peers: Sequence[str]) -> Found:
        keys = dict.fromkeys(key for one in results if one.measure == "growth" for key in one.values)
        found = []
        for axis in axes:
            along = [key for key in keys if key.startswith(f"{axis} ") and not key.endswith("all")]
            first = min(along, key=lambda key: int(key.split()[1]), default="")
            found += [_middle(ratios(*(of(results, "growth", "rota", one) for one in (key, first)))) for key in along]
        return max((one for one in found if one is not None), default=None)

    return find


TARGETS = (
    Target("drain, to the classic loop", ratio("drain", "rate", "classic"), True, 3, "x"),
    Target("drain, to the best peer that is at-least-once", ratio_to_best_peer("drain", "rate"), True, 6, "x"),
    Target("tasks of 10 ms: the workers' time that is spent in them", number("work", "share"), True, 97, "%"),
    Target("waits, 100 at once to one at a time", ratio("waits", "rate", "rota", AT_ONCE), True, 20, "x"),
    Target("waits, 100 at once, to the best peer", ratio_to_best_peer("waits", "rate", AT_ONCE), True, 1, "x"),
    Target(
        "steady, p99 of lag, to the best peer",
        ratio_to_best_peer("steady", "lag_ms_p99", AT_ONCE, less_is_better=True),
        at_least=False,
        limit=1,
        unit="x",
    ),
    Target("enqueue, one a call, to a bare RPUSH loop", ratio("enqueue", "single", "raw"), True, 0.8, "x"),
    Target("enqueue, 500 a call, to pipelined RPUSH", ratio("enqueue", "bulk", "raw"), True, 0.5, "x"),
    Target("lag, p50", number("lag", "lag_ms_p50"), False, 1, "ms"),
    Target("lag, p99", number("lag", "lag_ms_p99"), False, 3, "ms"),
    Target("lag: tasks that started early", number("lag", "early"), False, 0, ""),
    Target("burst of 2,000: last start", number("burst", "lag_ms_max"), False, 100, "ms"),
    Target("wake, p50, to the classic loop", ratio("wake", "wake_ms_p50", "classic"), False, 1.3, "x"),
    Target("idle, 8 workers: commands a second", number("idle", "commands"), False, 8, "1/s"),
    Target("idle, 8 workers: of one processor", number("idle", "cpu_percent"), False, 0.3, "%"),
    Target("memory, 8 workers: fleet / 8", number("memory", "pss_mb"), False, 12, "MB"),
    Target("memory: the next worker", number("memory", "uss_mb"), False, 6, "MB"),
    Target("crash: the task runs again", number("crash", "rerun_ms"), False, 50, "ms"),
    Target("crash: the pool is whole", number("crash", "whole_ms"), False, 100, "ms"),
    Target("growth: tasks waiting, ready or delayed; queues", steepest("depth", "delayed", "queues"), False, 1.2, "x"),
    Target("growth: queues of a pattern that have work", steepest("pattern"), False, 1.2, "x"),
)


def table(results: Results, peers: Sequence[str]) -> str:
    """A line for each target that the run says something about."""
    lines = [line for target in TARGETS if (line := target.line(results, peers))]
    return "\n".join(["targets", *lines]) if lines else "targets: this run measured none of them"
