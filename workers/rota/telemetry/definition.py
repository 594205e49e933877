"""What a metric is: a counter, a gauge or a histogram, with its labels, and the process that computes it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota.telemetry.label_values import OTHER

LAG_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
# Labels whose values nobody knows beforehand. A metric without any of them has a number of series that is fixed.
OPEN_LABELS: Final = frozenset({"queue", "task", "schedule", "source"})


class Writer(StrEnum):
    """The process that computes a metric."""

    MASTER = "master"
    WORKER = "worker"
    POLLER = "poller"
    EXPORTER = "exporter"


@dataclass(frozen=True, slots=True)
class Definition:
    """What all metrics have in common. `writers` are the processes that compute it."""

    name: str
    help: str
    labels: tuple[str, ...]
    writers: tuple[Writer, ...]

    @property
    def numbers(self) -> int:
        """How many numbers a record of this metric holds."""
        return 1

    @property
    def is_open(self) -> bool:
        """Whether label sets of this metric may come without end."""
        return not OPEN_LABELS.isdisjoint(self.labels)

    @property
    def is_of_tasks(self) -> bool:
        """Whether each task of a queue has series of its own."""
        return self.labels[:2] == ("queue", "task")

    def as_other(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels with `_other` for each open one, or for all when none is open."""
        return tuple(
            OTHER if name in OPEN_LABELS or not self.is_open else value
            for name, value in zip(self.labels, labels, strict=True)
        )

    def tasks_as_other(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels with `_other` for the task."""
        return (labels[0], OTHER, *labels[2:]) if self.is_of_tasks else labels


@dataclass(frozen=True, slots=True)
class CounterDefinition(Definition):
    """Only grows, through restarts too. Slots are summed."""


@dataclass(frozen=True, slots=True)
class GaugeDefinition(Definition):
    """Goes up and down. Counts only while the process that set it lives. Living slots are summed, or the highest of
    them is shown."""

    takes_highest: bool = False


@dataclass(frozen=True, slots=True)
class PeakDefinition(Definition):
    """The highest value that was seen in about the last minute, in any slot; 0 when none was. Shown as a gauge.

    Two pairs of numbers, of half a minute each and used in turn: which half minute of CLOCK_BOOTTIME it is, and the
    highest value in it. So it is right however seldom somebody reads, and also when the process has died.
    """

    @property
    def numbers(self) -> int:
        return 4


@dataclass(frozen=True, slots=True)
class HistogramDefinition(Definition):
    """Counts observations in `buckets`, upper bounds in ascending order. Slots are summed."""

    buckets: tuple[float, ...] = LAG_BUCKETS

    @property
    def numbers(self) -> int:
        """One number a bucket, one for what is above the last, and the sum."""
        return len(self.buckets) + 2
