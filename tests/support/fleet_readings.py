"""The output of a fleet under test: the lines of the tasks' journal, and the metrics."""

from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_GROWING: Final = ("counter", "histogram")
# Series that may be missing from a scrape, if a busy server took more than half a second to reply.
_READ_FROM_REDIS: Final = ("rota_tasks_enqueued_total",)

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the tasks' journal. Times are Unix seconds by the clock of this machine, which is also the server's."""

    event: str
    label: str
    name: str
    id: str
    queue: str
    crashes: int
    pid: int
    at: float
    due_at: float


class Scrape:
    """A response of the metrics endpoint."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[tuple[str, Labels], float] = {}
        self.growing: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                self.values[key] = sample.value
                if family.type in _GROWING:
                    self.growing[key] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the series with this name and these labels."""
        wanted = labels.items()
        return sum(value for (found, has), value in self.values.items() if found == name and wanted <= has)

    def fallen_since(self, earlier: "Scrape") -> list[str]:
        """Return the counters and histograms that have decreased or disappeared since the earlier scrape."""
        return [
            f"{name}{sorted(labels)}: {before} -> {self.growing.get((name, labels))}"
            for (name, labels), before in earlier.growing.items()
            if self.growing.get((name, labels), before if name in _READ_FROM_REDIS else -1.0) < before
        ]
