"""The work of a pool over the last few seconds and over the last minute, computed from the counters in the slots of its
workers.

The counters of each new process begin at 0. The code of a task runs in the same process, so a faulty task can overwrite
the counters with any values. Therefore this module adds up the increases of each process's counters, and ignores an
increase that no worker could have reached.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from rota.child.slot_load import Load
from rota_supervisor.master.core.scaling_inputs import LoadWindow

SHORT_SECONDS: Final = 2.0
LONG_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 0.4  # readings are taken every 0.5 s; additional ones in between are not kept
_SLACK_SECONDS: Final = 0.5  # the possible error in a total of times that a worker has reported
_MOST_STARTS: Final = 1_000_000  # starts per second, far more than is possible: even an empty task takes 10 us
_ROUNDING: Final = 1.001
_UNKNOWN_VARIATION: Final = 1.0  # used if the variation is unknown: the value for an exponential distribution

ProcessKey = tuple[int, int]
"""The slot and the nonce of a process."""


class WorkerReading(NamedTuple):
    """The counters of one worker at one moment."""

    key: ProcessKey
    load: Load
    task_slots: int


class PoolTotals(NamedTuple):
    """The work of all workers of a pool since this node began measuring."""

    starts: int = 0
    occupied_seconds: float = 0.0
    ended: int = 0
    run_seconds: float = 0.0
    squares: float = 0.0  # the sum of the squared run times, in square seconds
    first_attempts: int = 0
    first_failures: int = 0

    def plus(self, growth: "PoolTotals") -> "PoolTotals":
        """Return these totals increased by `growth`."""
        return PoolTotals._make(mine + more for mine, more in zip(self, growth, strict=True))

    def minus(self, earlier: "PoolTotals") -> "PoolTotals":
        """Return the work done since `earlier`, the totals at an earlier time."""
        return PoolTotals._make(now - before for now, before in zip(self, earlier, strict=True))


class PoolMeter:
    """A meter that computes how much work one pool has done on this node over windows of time."""

    def __init__(self) -> None:
        # the time and the counters of each process's last reading
        self._known: dict[ProcessKey, tuple[float, Load]] = {}
        self._totals = PoolTotals()
        self._crashes: int | None = None
        self._samples: deque[tuple[float, PoolTotals]] = deque()
        self._read_at: float | None = None

    def add(self, workers: Iterable[WorkerReading], first_crashes: int, at: float) -> None:
        """Add the growth of these workers' counters since the previous reading.

        The first reading only sets the starting values, because the workers may have been running for days. `at`: the
        time of this reading, in seconds of CLOCK_BOOTTIME. `first_crashes`: how many first attempts have so far ended
        on this node because their worker died. A dead worker cannot count them itself, so they are not in its counters.
        """
        before = self._read_at
        self._read_at = at
        for worker in workers:
            if before is not None:
                read_at, earlier = self._known.get(worker.key, (before, Load()))
                self._totals = self._totals.plus(growth_of(earlier, worker, at - read_at) or PoolTotals())
            self._known[worker.key] = at, worker.load
        self._known = {key: each for key, each in self._known.items() if each[0] >= at - LONG_SECONDS}
        crashes = 0 if self._crashes is None else max(0, first_crashes - self._crashes)
        self._crashes = first_crashes
        self._totals = self._totals.plus(PoolTotals(first_attempts=crashes, first_failures=crashes))
        self._keep_sample(at)

    def _keep_sample(self, at: float) -> None:
        samples = self._samples
        if not samples or at - samples[-1][0] >= _SAMPLE_SECONDS:
            samples.append((at, self._totals))
        while len(samples) > 1 and samples[1][0] <= at - LONG_SECONDS:
            samples.popleft()

    def window(self, seconds: float) -> LoadWindow:
        """Return the work done in the last `seconds`, or since the first reading if that was later."""
        at = self._read_at
        if at is None:
            return LoadWindow(0.0, 0, 0.0, _UNKNOWN_VARIATION, 0, 0)
        latest = at - seconds + _SAMPLE_SECONDS / 2
        began, before = next((each for each in reversed(self._samples) if each[0] <= latest), self._samples[0])
        done = self._totals.minus(before)
        return LoadWindow(
            at - began,
            done.starts,
            done.occupied_seconds,
            variation_of(done),
            done.first_attempts,
            done.first_failures,
        )


def growth_of(before: Load, worker: WorkerReading, seconds: float) -> PoolTotals | None:
    """Return the work that a worker has done in the `seconds` between two readings of its counters. Returns None if no
    worker could have done that much, because a task has then overwritten the counters."""
    after = worker.load
    growth = PoolTotals(
        max(0, after.started - before.started),  # A worker may undo a start that it counted in advance.
        after.occupied_seconds - before.occupied_seconds,
        after.ended - before.ended,
        after.run_seconds - before.run_seconds,
        after.squares - before.squares,
        after.first_attempts - before.first_attempts,
        after.first_failures - before.first_failures,
    )
    most_starts = _MOST_STARTS * (seconds + _SLACK_SECONDS)
    is_possible = (
        all(part >= 0 for part in growth)
        and growth.occupied_seconds <= worker.task_slots * seconds + _SLACK_SECONDS
        and max(growth.starts, growth.ended, growth.first_attempts) <= most_starts
        and growth.first_failures <= growth.first_attempts
        and after.run_seconds <= after.occupied_seconds * _ROUNDING + _SLACK_SECONDS
        and after.squares <= after.run_seconds**2 * _ROUNDING
    )
    return growth if is_possible else None


def variation_of(done: PoolTotals) -> float:
    """Return the squared coefficient of variation of the run times. It is 0 if all run times are equal."""
    if done.ended <= 1 or done.run_seconds <= 0:
        return _UNKNOWN_VARIATION
    mean = done.run_seconds / done.ended
    return max(0.0, done.squares / done.ended / mean**2 - 1)
