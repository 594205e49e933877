"""The amount of work in each measurement, by profile."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """The numbers of rounds, tasks and seconds of a run. With larger numbers, the results vary less, but the same
    things are measured.
    """

    rounds: int
    drain_seconds: float  # the approximate duration of one drain
    work_tasks: int
    enqueue_seconds: float
    enqueue_repeats: int
    lag_tasks: int
    lag_seconds: float
    burst_tasks: int
    burst_ahead_seconds: float
    wake_tasks: int
    steady_tasks: int
    steady_rate: float  # tasks per second; even the slowest contender can sustain this on two processors
    load_seconds: float
    idle_seconds: float
    crash_seconds: float  # if a task does not start again within this time, it counts as lost
    crash_kills: int
    starts: int
    depths: tuple[int, ...]
    worker_counts: tuple[int, ...]
    queue_counts: tuple[int, ...]
    busy_queue_counts: tuple[int, ...]
    growth_tasks: int

    def rounds_of(self, measure: str) -> int:
        """Return the number of rounds of a measurement. Slow measurements whose results vary little have only a third
        of the rounds.
        """
        return -(-self.rounds // 3) if measure in SLOW else self.rounds


SLOW = frozenset(
    {"limits", "work", "steady", "held", "lag", "burst", "load", "idle", "memory", "crash", "start", "growth"}
)

FULL = Effort(
    rounds=3,
    drain_seconds=2.0,
    work_tasks=1000,
    enqueue_seconds=0.3,
    enqueue_repeats=5,
    lag_tasks=300,
    lag_seconds=15.0,
    burst_tasks=2000,
    burst_ahead_seconds=5.0,
    wake_tasks=200,
    steady_tasks=2000,
    steady_rate=400.0,
    load_seconds=8.0,
    idle_seconds=20.0,  # as long as a worker sleeps at most
    crash_seconds=30.0,
    crash_kills=2,
    starts=5,
    depths=(1_000, 10_000, 100_000, 1_000_000),
    worker_counts=(1, 2, 4, 8, 16),
    queue_counts=(1, 10, 100),
    busy_queue_counts=(10, 100, 1_000, 10_000),
    growth_tasks=10_000,
)
QUICK = Effort(
    rounds=1,
    drain_seconds=0.7,
    work_tasks=200,
    enqueue_seconds=0.15,
    enqueue_repeats=3,
    lag_tasks=100,
    lag_seconds=4.0,
    burst_tasks=2000,
    burst_ahead_seconds=3.0,
    wake_tasks=100,
    steady_tasks=1000,
    steady_rate=400.0,
    load_seconds=3.0,
    idle_seconds=20.0,
    crash_seconds=3.0,
    crash_kills=3,
    starts=3,
    depths=(1_000, 10_000, 100_000),
    worker_counts=(1, 2, 4),
    queue_counts=(1, 10, 100),
    busy_queue_counts=(10, 100, 1_000, 10_000),
    growth_tasks=2_000,
)
