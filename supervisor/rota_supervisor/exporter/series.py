"""Which series exist: those that are there at 0 from the start, and the label sets that are kept apart.

What of them `/metrics` shows under its own name is chosen in `folding`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from rota.telemetry import label_values
from rota.telemetry import metrics as m
from rota.telemetry.definition import OPEN_LABELS, CounterDefinition, Definition, HistogramDefinition, Writer
from rota_supervisor.exporter.samples import Labels

MOST_LABEL_SETS: Final = 1 << 16  # that are kept apart in memory: a task can write any number of them into its slot
_MOST_OF_THE_FLEET: Final = 5000
_MOST_VALUES: Final = 32  # of a label that is not open, as `kind` is, in one metric
# The values of labels that are fixed sets; `reason` means something else in each metric.
_FIXED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    m.TASKS_RECOVERED.name: {"reason": label_values.RECOVERY_REASONS},
    m.PROCESS_RESTARTS.name: {"role": label_values.CHILD_ROLES, "reason": label_values.RESTART_REASONS},
    m.CONFIG_RELOADS.name: {"result": label_values.RELOAD_RESULTS},
}


def exposed_series(definition: Definition) -> int:
    """Return how many time series a label set is for Prometheus: a histogram has `_count` and `+Inf` too."""
    return definition.numbers + 1 if isinstance(definition, HistogramDefinition) else 1


def zeroes(queues: Iterable[str]) -> Iterator[tuple[Definition, Labels]]:
    """Yield the series that exist at 0 from the start, so that the first event already counts in a `rate()`: of every
    counter whose label values are known beforehand, as each queue and each kind are. A histogram is some 20 series, and
    begins with its first observation (ADR 38)."""
    known = {"queue": tuple(queues), "kind": label_values.KINDS}
    for definition in m.ALL:
        values = known | _FIXED.get(definition.name, {})
        if _begins_at_zero(definition) and values.keys() >= set(definition.labels):
            yield from ((definition, labels) for labels in product(*(values[label] for label in definition.labels)))


def is_gauge_of_a_queue(definition: Definition) -> bool:
    """Whether each queue that is shown has one such series, from the start."""
    return (
        definition.labels == ("queue",)
        and not isinstance(definition, HistogramDefinition)
        and not _begins_at_zero(definition)
    )


def _begins_at_zero(definition: Definition) -> bool:
    is_recorded = definition.writers != (Writer.EXPORTER,) or definition is m.TASK_STARTS
    return is_recorded and isinstance(definition, CounterDefinition)


ZEROES_OF_A_QUEUE: Final = sum(1 for _, labels in zeroes("q") if "q" in labels)
GAUGES_OF_A_QUEUE: Final = sum(map(is_gauge_of_a_queue, m.ALL))


class SeriesBound:
    """Says which label sets are kept apart, so that memory is bounded whatever a task writes into its slot.

    A queue of the configuration keeps its own name in any case, and so do the labels that are not open: what is derived
    from several metrics of one queue is right with any number of tasks.
    """

    def __init__(self, queues: Iterable[str] = (), room: int = MOST_LABEL_SETS) -> None:
        self._queues = frozenset(queues)
        self._room = {False: _MOST_OF_THE_FLEET, True: room}  # by whether label sets may come without end
        self._admitted: set[tuple[str, Labels]] = set()
        self._values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._refused = 0

    def admit(self, definition: Definition, own_labels: Labels) -> Labels:
        """Return the labels under which these are kept: their own if there is room."""
        is_one_of_many = definition.is_open
        labels = self._with_known_values(definition, own_labels) if is_one_of_many else own_labels
        if (definition.name, labels) not in self._admitted:
            if not self._room[is_one_of_many]:
                self._refused += 1
                return self._without_room(definition, labels)
            self._room[is_one_of_many] -= 1
            self._admitted.add((definition.name, labels))
        return labels

    def take_refused(self) -> int:
        """Return how many label sets found no room since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def _with_known_values(self, definition: Definition, labels: Labels) -> Labels:
        """Return the labels; of one that is not open at most `_MOST_VALUES` different values."""
        return tuple(
            value if name in OPEN_LABELS or self._is_known(definition, name, value) else label_values.OTHER
            for name, value in zip(definition.labels, labels, strict=True)
        )

    def _is_known(self, definition: Definition, name: str, value: str) -> bool:
        values = self._values[definition.name, name]
        if len(values) < _MOST_VALUES:
            values.add(value)
        return value in values

    def _without_room(self, definition: Definition, labels: Labels) -> Labels:
        is_of_ours = definition.labels[0] == "queue" and labels[0] in self._queues
        return definition.tasks_as_other(labels) if is_of_ours else definition.as_other(labels)
