"""How many series there are: which exist at 0 from the start, and what is shown of those that come.

`max_series` bounds the whole answer. A quarter of it is kept for the fleet's own series: of pools, states, roles,
reasons, slots. They are never folded, however many queues there are. What a queue has in any case comes next; of what
is left half is for zeroes at most, and the rest for what processes record of queues and tasks.
"""

from collections.abc import Iterable, Iterator
from itertools import count, product
from typing import Final, NamedTuple

from rota.telemetry import label_values
from rota.telemetry import metrics as m
from rota.telemetry.definition import CounterDefinition, Definition, HistogramDefinition, Writer
from rota_supervisor.exporter.largest import MOST_STRANGE
from rota_supervisor.exporter.samples import Labels

# Labels whose values nobody knows beforehand. A metric without any of them has a number of series that is fixed.
OPEN_LABELS: Final = frozenset({"queue", "task", "schedule", "source"})
# The values of labels that are fixed sets; `reason` means something else in each metric.
_FIXED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    m.TASKS_RECOVERED.name: {"reason": label_values.RECOVERY_REASONS},
    m.PROCESS_RESTARTS.name: {"role": label_values.CHILD_ROLES, "reason": label_values.RESTART_REASONS},
    m.CONFIG_RELOADS.name: {"result": label_values.RELOAD_RESULTS},
}


def is_open(definition: Definition) -> bool:
    """Whether label sets of this metric may come without end."""
    return not OPEN_LABELS.isdisjoint(definition.labels)


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


def _begins_at_zero(definition: Definition) -> bool:
    is_recorded = definition.writers != (Writer.EXPORTER,) or definition is m.TASK_STARTS
    return is_recorded and isinstance(definition, CounterDefinition)


ZEROES_OF_A_QUEUE: Final = sum(1 for _, labels in zeroes("q") if "q" in labels)
GAUGES_OF_A_QUEUE: Final = sum(
    1
    for each in m.ALL
    if each.labels == ("queue",) and not isinstance(each, HistogramDefinition) and not _begins_at_zero(each)
)


_OTHERS: Final = sum(exposed_series(each) for each in m.ALL if is_open(each))  # the `_other` of each metric


class Shares(NamedTuple):
    """What the bound is divided into. `fleet`: series of the fleet's own. `queues`: how many configured queues have
    gauges, and `zeroed`: how many have counters at 0 from the start; those of the highest tiers first. `strange`: how
    many queues that are not configured are shown. `recorded`: series of queues and tasks that processes record, beside
    those that were there at 0."""

    fleet: int
    queues: int
    zeroed: int
    strange: int
    recorded: int


def shares_of(max_series: int, queues: int, top_queues: int) -> Shares:
    """Divide the bound for so many configured queues; `top_queues`: those of patterns that are shown by name."""
    fleet = max_series // 4
    left = max(0, max_series - fleet - _OTHERS)
    shown = min(queues, left // GAUGES_OF_A_QUEUE)
    left -= shown * GAUGES_OF_A_QUEUE
    strange = min(MOST_STRANGE + top_queues + 1, left // 4 // GAUGES_OF_A_QUEUE)
    left -= strange * GAUGES_OF_A_QUEUE
    zeroed = min(shown, left // 2 // ZEROES_OF_A_QUEUE)
    return Shares(fleet, shown, zeroed, strange, left - zeroed * ZEROES_OF_A_QUEUE)


def enough_for(max_series: int, queues: int, top_queues: int) -> int:
    """Return a bound, at least `max_series`, with which so many queues are shown whole."""
    step = 1000
    return next(bound for bound in count(max_series, step) if shares_of(bound, queues, top_queues).zeroed == queues)


class SeriesBound:
    """Says which label sets that processes record are shown under their own names. Whoever was admitted stays."""

    def __init__(self, fleet: int, recorded: int) -> None:
        self._room = {False: fleet, True: recorded}  # by whether label sets may come without end
        self._admitted: set[tuple[str, Labels]] = set()
        self._refused = 0

    def admit(self, definition: Definition, labels: Labels) -> Labels:
        """Return these labels, or `_other` for each when there is no room."""
        is_one_of_many = is_open(definition)
        cost = exposed_series(definition) + (definition is m.TASK_LAG)  # which is the number of starts too
        others = (label_values.OTHER,) * len(labels)
        if (definition.name, labels) in self._admitted:
            return labels
        if labels != others and cost > self._room[is_one_of_many]:
            self._refused += 1
            return self.admit(definition, others)
        self._room[is_one_of_many] -= cost
        self.keep(definition, labels)
        return labels

    def take_refused(self) -> int:
        """Return how many label sets found no room since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def keep(self, definition: Definition, labels: Labels) -> None:
        """Admit these labels, which take no room."""
        self._admitted.add((definition.name, labels))
