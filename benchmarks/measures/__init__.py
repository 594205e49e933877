"""The measurements, by the names that `--measure` accepts, in the order in which they are made."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.effort import Effort
from benchmarks.measures import crash, drain, enqueue, idle, lateness, load, memory, start
from benchmarks.numbers import Values
from benchmarks.running import Running


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a measurement yields. `better` is "more" or "less", depending on which is better."""

    key: str
    title: str
    unit: str
    better: str
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Measure:
    """A measurement of a fleet with `workers` workers. Ratios are relative to the result of the contender `reference`
    in the same round."""

    name: str
    title: str
    workers: int
    run: Callable[[Running, Effort], Values]
    metrics: tuple[Metric, ...]
    reference: str


MEASURES = {
    one.name: one
    for one in (
        Measure(
            "drain",
            "drain: tasks that do nothing, 2 workers",
            drain.WORKERS,
            drain.measure,
            (Metric("rate", "tasks", "1/s", "more"), Metric("cpu_us", "CPU time per task", "us", "less", 1)),
            "classic",
        ),
        Measure(
            "work",
            "work: tasks of 10 ms, 2 workers",
            drain.WORKERS,
            drain.measure_work,
            (Metric("share", "time in tasks", "%", "more", 1),),
            "classic",
        ),
        Measure(
            "waits",
            "waits: tasks that wait 10 ms, 1 worker process",
            drain.WAITING_WORKERS,
            drain.measure_waits,
            (Metric("rate", "tasks", "1/s", "more"), Metric("cpu_us", "CPU time per task", "us", "less", 1)),
            "rota",
        ),
        Measure(
            "steady",
            "steady: tasks that wait 10 ms, enqueued at a steady rate, 1 worker process",
            lateness.STEADY_WORKERS,
            lateness.measure_steady,
            (
                Metric("lag_ms_p50", "p50", "ms", "less", 2),
                Metric("lag_ms_p99", "p99", "ms", "less", 2),
                Metric("offered", "arrived", "1/s", "more"),
            ),
            "rota-c100",
        ),
        Measure(
            "held",
            "held: 100 tasks that wait in 1 worker process",
            memory.HOLDING_WORKERS,
            memory.measure_held,
            (
                Metric("uss_mb", "the process", "MB", "less", 1),
                Metric("task_kb", "each task", "kB", "less", 1),
                Metric("pss_mb", "the fleet", "MB", "less", 1),
            ),
            "rota-c100",
        ),
        Measure(
            "enqueue",
            "enqueue: one producer",
            enqueue.WORKERS,
            enqueue.measure,
            (Metric("single", "one per call", "1/s", "more"), Metric("bulk", "500 per call", "1/s", "more")),
            "raw",
        ),
        Measure(
            "wake",
            "wake: enqueue to start, idle fleet of 4",
            lateness.WORKERS,
            lateness.measure_wake,
            (Metric("wake_ms_p50", "p50", "ms", "less", 2), Metric("wake_ms_p99", "p99", "ms", "less", 2)),
            "classic",
        ),
        Measure(
            "lag",
            "lag: due at random times, idle fleet of 4",
            lateness.WORKERS,
            lateness.measure_lag,
            (
                Metric("lag_ms_p50", "p50", "ms", "less", 2),
                Metric("lag_ms_p99", "p99", "ms", "less", 2),
                Metric("lag_ms_max", "most", "ms", "less", 2),
                Metric("early", "early", "tasks", "less"),
            ),
            "rota",
        ),
        Measure(
            "burst",
            "burst: 2,000 due at one instant, 4 workers",
            lateness.WORKERS,
            lateness.measure_burst,
            (Metric("lag_ms_max", "last start", "ms", "less"), Metric("early", "early", "tasks", "less")),
            "rota",
        ),
        Measure(
            "load",
            "load: tasks that arrive at random, 2 workers at a share of their capacity",
            load.WORKERS,
            load.measure,
            (
                Metric("rate", "capacity", "1/s", "more"),
                *(
                    Metric(f"lag_ms_p{name}_at_{share}", f"{share} %: p{name}", "ms", "less", 2)
                    for share in load.SHARES
                    for name in load.QUANTILES
                ),
            ),
            "rota",
        ),
        Measure(
            "idle",
            "idle: 8 workers, nothing to do",
            idle.WORKERS,
            idle.measure,
            (
                Metric("commands", "commands", "1/s", "less", 2),
                Metric("inside", "with those of scripts", "1/s", "less", 1),
                Metric("cpu_percent", "processor", "% of one", "less", 3),
            ),
            "rota",
        ),
        Measure(
            "memory",
            "memory: 8 workers",
            memory.WORKERS,
            memory.measure,
            (Metric("pss_mb", "fleet / 8", "MB", "less", 1), Metric("uss_mb", "one more worker", "MB", "less", 1)),
            "rota",
        ),
        Measure(
            "crash",
            "crash: SIGKILL in the middle of a task",
            crash.WORKERS,
            crash.measure,
            (
                Metric("rerun_ms", "runs again", "ms", "less", 1),
                Metric("whole_ms", "pool complete", "ms", "less", 1),
            ),
            "rota",
        ),
        Measure(
            "start",
            "start: a fleet of 2, to its first task",
            start.WORKERS,
            start.measure,
            (Metric("start_ms", "median", "ms", "less"), Metric("start_ms_max", "most", "ms", "less")),
            "rota",
        ),
    )
}
