"""The series of `/metrics`: their values at one time, the series that start at 0, and the choice of the names to show.

`max_series` limits the whole response. Either all series of a queue are shown or none, so that values computed from
several series are consistent, for example a burn rate from misses and starts. Queues for which there is no room are
merged into `_other`, which has the sums of their values. The tasks of a queue that is shown may also be merged, which
does not affect the totals of the queue.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import add
from typing import Final, NamedTuple

from rota.telemetry import metrics as m
from rota.telemetry.metrics import (
    OPEN_LABELS,
    OTHER,
    CounterDefinition,
    Definition,
    GaugeDefinition,
    HistogramDefinition,
    PeakDefinition,
    Writer,
)

Labels = tuple[str, ...]
Numbers = tuple[float, ...]
Series = tuple[Definition, Labels, Numbers]


@dataclass(frozen=True, slots=True)
class Samples:
    """The values of all series at one time. A series has one or more values: their number is `Definition.numbers` of
    its metric.
    """

    _by_name: dict[str, dict[Labels, Numbers]] = field(default_factory=dict)

    def put(self, definition: Definition, labels: Labels, *numbers: float) -> None:
        """Set the numbers of a series."""
        self._by_name.setdefault(definition.name, {})[labels] = numbers

    def add(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Add numbers to a series, which starts at 0."""
        series = self._by_name.setdefault(definition.name, {})
        known = series.get(labels)
        series[labels] = numbers if known is None else tuple(map(add, known, numbers))

    def raise_to(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Set a series to these numbers, unless its current numbers are higher."""
        self.put(definition, labels, *max(numbers, self.get(definition, *labels) or numbers))

    def series(self, definition: Definition) -> Iterator[tuple[Labels, Numbers]]:
        yield from self._by_name.get(definition.name, {}).items()

    def get(self, definition: Definition, *labels: str) -> Numbers | None:
        """Return the numbers of a series, or None if there is no such series."""
        return self._by_name.get(definition.name, {}).get(labels)

    def value(self, definition: Definition, *labels: str) -> float | None:
        """Return the number of a counter or gauge, or None if there is no such series."""
        numbers = self.get(definition, *labels)
        return None if numbers is None else numbers[0]


MOST_LABEL_SETS: Final = 1 << 16  # the maximum number kept in memory, because a task can write any number of label sets
_MAX_FLEET_LABEL_SETS: Final = 5000
_MAX_VALUES: Final = 32  # the maximum number of values of a label that is not open, such as `kind`, in one metric
# The possible values of labels that have a fixed set of values. They are listed by metric, because `reason` has
# different values in each one.
_FIXED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    m.TASKS_RECOVERED.name: {"reason": m.RECOVERY_REASONS},
    m.PROCESS_RESTARTS.name: {"role": m.CHILD_ROLES, "reason": m.RESTART_REASONS},
    m.CONFIG_RELOADS.name: {"result": m.RELOAD_RESULTS},
}


def exposed_series(definition: Definition) -> int:
    """Return how many time series Prometheus stores for one label set of a metric. A histogram has several."""
    return definition.numbers + 1 if isinstance(definition, HistogramDefinition) else 1


def zeroes(queues: Iterable[str]) -> Iterator[tuple[Definition, Labels]]:
    """Yield the series that are exported with the value 0 from the start, so that `rate()` already counts the first
    event.

    These are all counters whose label values are known in advance, such as each queue and each kind. Histograms are not
    among them: one takes about 20 series, so it begins with its first observation (ADR 38).
    """
    known = {"queue": tuple(queues), "kind": m.KINDS}
    for definition in m.ALL:
        values = known | _FIXED.get(definition.name, {})
        if _begins_at_zero(definition) and values.keys() >= set(definition.labels):
            yield from ((definition, labels) for labels in product(*(values[label] for label in definition.labels)))


def is_gauge_of_a_queue(definition: Definition) -> bool:
    """Whether every queue that is shown has a series of this gauge."""
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
    """A limit on how many label sets are kept separately, so that a task cannot exhaust the memory with what it writes
    into its slot.

    Beyond the limit, open labels, such as `task`, get the value `_other`. But a configured queue always keeps its own
    name, and labels that are not open keep their values. So the totals of a queue are right for any number of tasks.
    """

    def __init__(self, queues: Iterable[str] = (), room: int = MOST_LABEL_SETS) -> None:
        self._queues = frozenset(queues)
        self._room = {False: _MAX_FLEET_LABEL_SETS, True: room}  # by whether a metric has an open label
        self._admitted: set[tuple[str, Labels]] = set()
        self._values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._refused = 0

    def admit(self, definition: Definition, own_labels: Labels) -> Labels:
        """Return the labels under which the values of a label set are kept. These are its own labels, or beyond the
        limit, labels in which some values are replaced with `_other`.
        """
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
        """Return the number of label sets that exceeded the limit since the last call."""
        refused = self._refused
        self._refused = 0
        return refused

    def _with_known_values(self, definition: Definition, labels: Labels) -> Labels:
        """Return the labels, with unexpected values replaced with `_other`. A label that is not open, such as `kind`,
        has only a few values. After the first `_MAX_VALUES` different values of such a label, each further value is
        replaced.
        """
        return tuple(
            value if name in OPEN_LABELS or self._is_known(definition, name, value) else m.OTHER
            for name, value in zip(definition.labels, labels, strict=True)
        )

    def _is_known(self, definition: Definition, name: str, value: str) -> bool:
        values = self._values[definition.name, name]
        if len(values) < _MAX_VALUES:
            values.add(value)
        return value in values

    def _without_room(self, definition: Definition, labels: Labels) -> Labels:
        is_of_ours = definition.labels[0] == "queue" and labels[0] in self._queues
        return definition.tasks_as_other(labels) if is_of_ours else definition.as_other(labels)


Name = tuple[str, str]  # an open label and its value, for example `("queue", "mail")`
_VALUES_OF_CLOSED: Final = 8  # about this many kinds, outcomes or reasons occur
_OF_ALL_AS_ONE: Final = sum(
    exposed_series(each) * (_VALUES_OF_CLOSED if {"kind", "outcome", "reason"} & set(each.labels) else 1)
    for each in m.ALL
    if each.is_open
)
_OF_REDIS: Final = 20  # about this many series of the whole fleet are added after the choice
# The series of a queue that runs one task of one kind
_OF_A_BUSY_QUEUE: Final = (
    GAUGES_OF_A_QUEUE
    + ZEROES_OF_A_QUEUE
    + sum(map(exposed_series, (m.TASK_LAG, m.QUEUE_WAIT, m.TASK_RUNTIME, m.TASKS_PROCESSED, m.CLAIMS)))
)
_OF_A_PROCESS: Final = 4
_OF_A_FLEET: Final = 400


class Fold(NamedTuple):
    """The names that are merged and shown as `_other`."""

    names: frozenset[Name] = frozenset()  # queues, schedules and sources, each merged with all of its series
    tasks: frozenset[tuple[str, str]] = frozenset()  # (queue, task) of merged tasks whose queue is shown

    def has_queue(self, queue: str) -> bool:
        return ("queue", queue) in self.names

    def queue(self, queue: str) -> str:
        """Return the name under which a queue is shown."""
        return OTHER if self.has_queue(queue) else queue

    def labels(self, definition: Definition, labels: Labels) -> Labels:
        """Return the labels under which a series is shown."""
        if not definition.is_open:
            return labels
        if (definition.labels[0], labels[0]) in self.names:
            return definition.as_other(labels)
        return definition.tasks_as_other(labels) if labels[:2] in self.tasks else labels

    def apply(self, samples: Samples) -> Samples:
        """Return the series as they are shown, with the values of all merged series combined."""
        if not self.names and not self.tasks:
            return samples
        shown = Samples()
        for definition in m.ALL:
            is_highest = isinstance(definition, PeakDefinition) or (
                isinstance(definition, GaugeDefinition) and definition.takes_highest
            )
            merge = shown.raise_to if is_highest else shown.add
            for labels, numbers in samples.series(definition):
                merge(definition, self.labels(definition, labels), numbers)
        return shown


@dataclass(slots=True)
class _Costs:
    """The number of series that each name takes. A name is a queue or a value of another open label. The choice of the
    names to show depends on these numbers.
    """

    fleet: int = _OF_REDIS  # the number of series of the fleet
    names: Counter[Name] = field(default_factory=Counter)  # how many series each name takes if its tasks are merged
    tasks_as_one: Counter[str] = field(default_factory=Counter)  # how many series a queue's merged tasks take
    # For each queue, the number of series of each of its tasks
    tasks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of(cls, samples: Samples, queues: Iterable[str]) -> "_Costs":
        """Return the number of series that `samples` has for each name, including the gauges of each queue in `queues`,
        which are added to the samples later.
        """
        costs = cls()
        costs.names.update({("queue", queue): GAUGES_OF_A_QUEUE for queue in queues})
        for definition in m.ALL:
            if not is_gauge_of_a_queue(definition):
                costs._add(definition, [labels for labels, _ in samples.series(definition)])
        return costs

    def _add(self, definition: Definition, sets: Sequence[Labels]) -> None:
        cost = exposed_series(definition)
        if not definition.is_open:
            self.fleet += cost * len(sets)
        elif not definition.is_of_tasks:
            for labels in sets:
                self.names[definition.labels[0], labels[0]] += cost
        else:
            for queue, task, *_ in sets:
                self.tasks[queue][task] += cost
            for queue, *_ in {(queue, *closed) for queue, _, *closed in sets}:
                self.tasks_as_one[queue] += cost
                self.names["queue", queue] += cost

    def more_of_tasks(self, queue: str) -> int:
        """Return how many more series a queue takes if all of its tasks are shown by name instead of being merged."""
        return sum(self.tasks[queue].values()) - self.tasks_as_one[queue]

    def whole(self) -> int:
        return self.fleet + self.names.total() + sum(map(self.more_of_tasks, self.tasks))


class Folding:
    """The choice of the names (queues and tasks, for example) that are shown. Configured queues come first, in the
    order of their tiers.

    A name that was merged into `_other` stays there, because otherwise the counters of `_other` would decrease.
    """

    def __init__(self, max_series: int, queues: Sequence[str]) -> None:
        self._max_series = max_series
        self._queues = tuple(queues)
        self._fold = Fold()
        self._newly_folded = 0

    def take_folded(self) -> int:
        """Return how many queues and tasks were merged into `_other` since the last call."""
        number = self._newly_folded
        self._newly_folded = 0
        return number

    def choose(self, samples: Samples, others: Sequence[str] = ()) -> Fold:
        """Choose the names that are merged into `_other`, so that at most `max_series` series are shown. Room is left
        for the gauges of queues, which are added to `samples` later.

        `others`: queues that are not configured but have gauges, in order of preference.
        """
        costs = _Costs.of(samples, (*self._queues, *others))
        if not self._fold.names and not self._fold.tasks and costs.whole() <= self._max_series:
            return self._fold
        names, left = self._names_without_room(costs, others, self._max_series - costs.fleet - _OF_ALL_AS_ONE)
        queues = [queue for key, queue in costs.names if key == "queue" and ("queue", queue) not in names]
        tasks = frozenset(self._tasks_without_room(costs, queues, left))
        # The queues in `others` have no counters on this node, so they may leave `_other` again. They are not
        # remembered, because their number is not limited.
        passing = {("queue", queue) for queue in others}
        self._newly_folded += len(names - passing - self._fold.names) + len(tasks - self._fold.tasks)
        self._fold = Fold(names - passing, tasks)
        return Fold(names, tasks)

    def _names_without_room(self, costs: _Costs, others: Sequence[str], left: int) -> tuple[frozenset[Name], int]:
        """Return the names that do not fit into `left` more series, and the number of series that are left after all
        other names were added.
        """
        first = [("queue", queue) for queue in (*self._queues, *others)]
        without = set(self._fold.names)
        for name in dict.fromkeys((*first, *costs.names)):
            if name in without or costs.names[name] > left:
                without.add(name)
            else:
                left -= costs.names[name]
        return frozenset(without), left

    def _tasks_without_room(self, costs: _Costs, queues: Iterable[str], left: int) -> Iterator[tuple[str, str]]:
        for queue in queues:
            tasks = {task: cost for task, cost in costs.tasks[queue].items() if (queue, task) not in self._fold.tasks}
            yield from ((queue, task) for task in costs.tasks[queue].keys() - tasks.keys())
            if len(tasks) == len(costs.tasks[queue]) and costs.more_of_tasks(queue) <= left:
                left -= costs.more_of_tasks(queue)
                continue
            for task, cost in tasks.items():
                if cost > left:
                    yield queue, task
                else:
                    left -= cost


def queues_with_room(max_series: int, workers: int) -> int:
    """Return how many queues can be shown by name with this `max_series`, in a fleet with this number of workers.

    The result assumes that each queue runs one task of one kind. Each further task takes about 20 series.
    """
    left = max_series - _OF_A_FLEET - _OF_A_PROCESS * workers - _OF_ALL_AS_ONE
    return max(0, left // _OF_A_BUSY_QUEUE)


def enough_for(queues: int, workers: int) -> int:
    """Return a value for `max_series`, rounded up to thousands, with which this number of queues can be shown by
    name.
    """
    series = queues * _OF_A_BUSY_QUEUE + _OF_A_FLEET + _OF_A_PROCESS * workers + _OF_ALL_AS_ONE
    return -(-series // 1000) * 1000
