"""Which queues and tasks `/metrics` shows under their own names, so that `max_series` bounds the whole answer.

A queue is shown with all of its series or with none: numbers that are derived from several of them, as a burn rate is
from misses and starts, are then of one set. Queues without room are shown as one, `_other`, with all that they counted.
Of a queue that is shown the tasks may be shown as one: what was counted of the queue stays whole.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.telemetry import metrics as m
from rota.telemetry.definition import Definition, GaugeDefinition, PeakDefinition
from rota.telemetry.label_values import OTHER
from rota_supervisor.exporter.samples import Labels, Samples
from rota_supervisor.exporter.series import (
    GAUGES_OF_A_QUEUE,
    ZEROES_OF_A_QUEUE,
    exposed_series,
    is_gauge_of_a_queue,
)

Name = tuple[str, str]  # an open label and its value, for example `("queue", "mail")`
_VALUES_OF_CLOSED: Final = 8  # about as many kinds, outcomes and reasons there are
_OF_ALL_AS_ONE: Final = sum(
    exposed_series(each) * (_VALUES_OF_CLOSED if {"kind", "outcome", "reason"} & set(each.labels) else 1)
    for each in m.ALL
    if each.is_open
)
_OF_REDIS: Final = 20  # series of the fleet that are put after the choice
# What a queue has that runs one task of one kind.
_OF_A_BUSY_QUEUE: Final = (
    GAUGES_OF_A_QUEUE
    + ZEROES_OF_A_QUEUE
    + sum(map(exposed_series, (m.TASK_LAG, m.QUEUE_WAIT, m.TASK_RUNTIME, m.TASKS_PROCESSED, m.CLAIMS)))
)
_OF_A_PROCESS: Final = 4
_OF_A_FLEET: Final = 400


class Fold(NamedTuple):
    """What is shown as `_other`: queues (and schedules, sources) as a whole, and single tasks of queues that are
    shown."""

    names: frozenset[Name] = frozenset()
    tasks: frozenset[tuple[str, str]] = frozenset()

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
        """Return the series as they are shown."""
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
    """How many series there are: of the fleet, of each name with its tasks as one, of these alone, and of each task."""

    fleet: int = _OF_REDIS
    names: Counter[Name] = field(default_factory=Counter)
    tasks_as_one: Counter[str] = field(default_factory=Counter)
    tasks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of(cls, samples: Samples, queues: Iterable[str]) -> "_Costs":
        """Count the series of `samples`, and the gauges that these queues have besides."""
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
        """Return how many more series a queue has if all of its tasks are shown by name."""
        return sum(self.tasks[queue].values()) - self.tasks_as_one[queue]

    def whole(self) -> int:
        return self.fleet + self.names.total() + sum(map(self.more_of_tasks, self.tasks))


class Folding:
    """Chooses what is shown under its own name, for the queues of the configuration first, in the order of their tiers.
    What has become `_other` stays so, or its counters would go back."""

    def __init__(self, max_series: int, queues: Sequence[str]) -> None:
        self._max_series = max_series
        self._queues = tuple(queues)
        self._fold = Fold()
        self._newly_folded = 0

    def take_folded(self) -> int:
        """Return how many queues and tasks have become `_other` since the last call."""
        number, self._newly_folded = self._newly_folded, 0
        return number

    def choose(self, samples: Samples, others: Sequence[str] = ()) -> Fold:
        """Choose for these samples, which lack the gauges of queues. `others`: queues that are not configured and have
        gauges, in the order in which they are to be shown."""
        costs = _Costs.of(samples, (*self._queues, *others))
        if not self._fold.names and not self._fold.tasks and costs.whole() <= self._max_series:
            return self._fold
        names, left = self._names_without_room(costs, others, self._max_series - costs.fleet - _OF_ALL_AS_ONE)
        queues = [queue for key, queue in costs.names if key == "queue" and ("queue", queue) not in names]
        tasks = frozenset(self._tasks_without_room(costs, queues, left))
        passing = {("queue", queue) for queue in others}  # of which nothing is counted here, and there is no end
        self._newly_folded += len(names - passing - self._fold.names) + len(tasks - self._fold.tasks)
        self._fold = Fold(names - passing, tasks)
        return Fold(names, tasks)

    def _names_without_room(self, costs: _Costs, others: Sequence[str], left: int) -> tuple[frozenset[Name], int]:
        """Return what has no room, and how much is left."""
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
    """Return how many queues can be shown under their own names in a fleet of so many workers, when each queue runs one
    task of one kind. Each task more takes about 20 series."""
    left = max_series - _OF_A_FLEET - _OF_A_PROCESS * workers - _OF_ALL_AS_ONE
    return max(0, left // _OF_A_BUSY_QUEUE)


def enough_for(queues: int, workers: int) -> int:
    """Return a bound, in thousands, with which so many queues are shown under their own names."""
    series = queues * _OF_A_BUSY_QUEUE + _OF_A_FLEET + _OF_A_PROCESS * workers + _OF_ALL_AS_ONE
    return -(-series // 1000) * 1000
