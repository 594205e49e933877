"""`PYTHONPATH=tests python -m benchmarks.flood`: many delayed tasks become due during a steady load. Only Rota is
measured, with two workers. The due times of a million tasks are spread evenly over a minute, or 100,000 tasks are due
at one instant (`--delayed 100000 --within 0`). Meanwhile, other tasks arrive randomly at a share of the capacity of the
two workers. The report shows whether every task started exactly once and not early, and which scripts took over a
millisecond. It also shows how late both kinds of tasks started over the course of the run, and when the lag was normal
again.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.contenders.rota import ROTA
from benchmarks.measures.load import WORKERS, highest_rate, lags_under
from benchmarks.numbers import quantile
from benchmarks.processes import adopt_orphans, give_a_processor_to
from benchmarks.running import Running, running
from benchmarks.testbed import Line, Testbed, wait_until
from support.servers import Server, server_binaries
from support.slow_calls import SlowCall, calls_over_a_millisecond

NORMAL_SECONDS: Final = 3.0
SLICE_SECONDS: Final = 0.25
SHOWN_SLICES: Final = 24
LEAST_AHEAD_SECONDS: Final = 3.0
ENQUEUED_A_SECOND: Final = 30_000
DRAIN_SECONDS: Final = 60.0
MICROSECONDS: Final = 1_000_000

Slices = dict[int, list[float]]  # lags in milliseconds, by the number of the slice in which the tasks were due


def main() -> None:
    """Run the measurement, and print the results."""
    wanted = _arguments()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        server = Server(server_binaries()[wanted.server], Path(name)).start()
        try:
            if wanted.apart:
                give_a_processor_to(server.pid)
            with running(ROTA, Testbed(server, Path(name)), WORKERS) as run:
                rate = highest_rate(run, NORMAL_SECONDS) * wanted.share / 100
                normal_ms = _normal_ms(run, rate, wanted.share)
                _flood(run, wanted, rate, normal_ms)
        finally:
            server.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood")
    parser.add_argument("--server", choices=sorted(server_binaries()), default=min(server_binaries()))
    parser.add_argument("--share", type=float, default=50.0, help="the load beside them in percent; default 50")
    parser.add_argument("--delayed", type=int, default=1_000_000, help="the number of delayed tasks; default a million")
    parser.add_argument("--within", type=float, default=60.0, help="seconds within which all are due; default 60")
    parser.add_argument("--after", type=float, default=15.0, help="seconds of load after that; default 15")
    parser.add_argument("--apart", action="store_true", help="reserve a processor for the server")
    return parser.parse_args()


def _normal_ms(run: Running, rate: float, share: float) -> float:
    late = lags_under(run, rate, NORMAL_SECONDS)
    p50 = quantile(late, 0.5)
    p99 = quantile(late, 0.99)
    print(f"the load alone, {rate:,.0f} tasks per second ({share:g} %): lag p50 {p50:.2f}, p99 {p99:.2f} ms")
    return p99


def _flood(run: Running, wanted: argparse.Namespace, rate: float, normal_ms: float) -> None:
    testbed = run.testbed
    before = run.testbed.counted()
    testbed.forget_journal()
    due = time.time() + LEAST_AHEAD_SECONDS + wanted.delayed / ENQUEUED_A_SECOND
    run.producer.pile("delayed", wanted.delayed, due, wanted.within)
    if time.time() > due:
        sys.exit("the producer was still enqueuing when the first task was due: use a smaller --delayed")
    with calls_over_a_millisecond(testbed.client) as calls:
        time.sleep(max(0.0, due - NORMAL_SECONDS - time.time()))
        seconds = due + wanted.within + wanted.after - time.time()
        all_of_them = wanted.delayed + run.producer.come("mark", rate, seconds)
        wait_until(lambda: testbed.counted() >= before + all_of_them, f"{all_of_them} tasks", DRAIN_SECONDS)
        time.sleep(SLICE_SECONDS)  # time in which a task that wrongly starts twice would be seen
    print(
        f"the load meanwhile: {all_of_them - wanted.delayed:,} tasks arrived, {len(testbed.journal('mark')):,} starts"
    )
    print(_scripts(calls))
    _say_how_late(wanted, testbed, due, normal_ms)


def _say_how_late(wanted: argparse.Namespace, testbed: Testbed, due: float, normal_ms: float) -> None:
    delayed = testbed.journal("delayed")
    others = testbed.journal("mark")
    early = sum(line.late_ms < 0 for line in delayed)
    print(f"{wanted.delayed:,} delayed tasks due within {wanted.within:g} s: {len(delayed):,} starts, {early} early")
    for name, lines in (("delayed", delayed), ("load", others)):
        print(f"{name}, median lag in ms by due time: {_shown(slices(lines, due))}")
    over = max((end for lines in (delayed, others) for end in ends_above(slices(lines, due), normal_ms)), default=0.0)
    print(f"from {over:g} s after the first due time, the median lag is below {normal_ms:.1f} ms again")


def _scripts(calls: Iterable[SlowCall]) -> str:
    longest: dict[str, float] = defaultdict(float)
    counts = Counter(call.script for call in calls)
    over = Counter(call.script for call in calls if call.seconds > 0.005)
    for call in calls:
        longest[call.script] = max(longest[call.script], call.seconds * 1000)
    totals = (f"{name} {counts[name]} ({over[name]} over 5 ms, longest {longest[name]:.1f} ms)" for name in longest)
    return f"scripts over 1 ms: {', '.join(totals) or 'none'}"


def slices(lines: Iterable[Line], first_due: float) -> Slices:
    """Return the lags of all tasks, grouped by the time slice in which the tasks were due. Slice 0 begins at the Unix
    time `first_due`.
    """
    found: Slices = defaultdict(list)
    for line in lines:
        found[int((line.label / MICROSECONDS - first_due) // SLICE_SECONDS)].append(line.late_ms)
    return found


def _shown(found: Slices) -> str:
    """Return the median lags of evenly spaced slices, as many as fit on a line."""
    numbers = sorted(number for number in found if number >= 0)
    step = max(1, len(numbers) // SHOWN_SLICES)
    return "  ".join(
        f"{number * SLICE_SECONDS:g}s {statistics.median(found[number]):.1f}" for number in numbers[::step]
    )


def ends_above(found: Slices, normal_ms: float) -> Sequence[float]:
    """Find the slices whose median lag is above `normal_ms`. Return the end of each, in seconds after the first due
    time.
    """
    late = [number for number in found if number >= 0 and statistics.median(found[number]) > normal_ms]
    return [(number + 1) * SLICE_SECONDS for number in late]


if __name__ == "__main__":
    main()
