"""The exposition of samples as metric families of prometheus_client, in the format that the scrape accepts: the plain
format or OpenMetrics. Created timestamps and exemplars exist only in OpenMetrics. An exemplar names a task that was
counted in a bucket of a lag histogram.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import core as prometheus
from prometheus_client.exposition import choose_encoder

from rota.display_text import printable
from rota.protocol.entry import MICROSECONDS, parse_entry
from rota.protocol.keys import is_name
from rota.telemetry import metrics as m
from rota.telemetry.metrics import TASK_LAG, CounterDefinition, Definition, HistogramDefinition
from rota_supervisor.exporter.series import Labels, Numbers, Samples
from rota_supervisor.fleet_snapshot import Member, MemberTask

_FLEET: Final = "fleet"
_END: Final = b"# EOF\n"  # marks the end of a response in OpenMetrics


class ScrapeOptions(NamedTuple):
    """The options of a scrape."""

    accept: str = ""  # the Accept header
    names: frozenset[str] = frozenset()  # the names of the samples to return, or empty for all
    # Whether to add the time at which each series began. Each of these times takes a line of the response, and a
    # Prometheus that is not configured to read created timestamps stores each as a separate series.
    created: bool = False


class Origins(NamedTuple):
    """Additional data for OpenMetrics: when each series began, and the exemplars of histograms."""

    created_at: Callable[[Definition, Labels], float | None]  # when a series began, in Unix seconds; None if unknown
    # For each histogram series, its exemplars by bucket index
    exemplars: Mapping[tuple[str, Labels], Mapping[int, prometheus.Exemplar]]


class Exposition(NamedTuple):
    """The response to a scrape."""

    content_type: str
    body: bytes


class _Families(NamedTuple):
    """A collection of metric families with the registry interface that the encoders require."""

    families: Iterable[prometheus.Metric]

    def collect(self) -> Iterable[prometheus.Metric]:
        return self.families


def exposition(samples: Samples, fleet: str, wanted: ScrapeOptions, origins: Origins, began: float) -> Exposition:
    """Return the response to a scrape, with all metrics that have samples.

    Every series has the label `fleet`, so that two fleets in one scrape job remain distinct. The last metric is the
    duration of the collection, which began at the monotonic time `began`.
    """
    encode, content_type = choose_encoder(wanted.accept)
    body = encode(_Families(_families(samples, printable(fleet), wanted, origins)))
    took = Samples()
    took.put(m.COLLECT_SECONDS, (), time.monotonic() - began)
    last = encode(_Families(_families(took, printable(fleet), wanted, origins)))
    return Exposition(content_type, body.removesuffix(_END) + last)


def _families(samples: Samples, fleet: str, wanted: ScrapeOptions, origins: Origins) -> Iterator[prometheus.Metric]:
    """Yield one family for each metric that has samples and whose name is wanted."""
    for definition in m.ALL:
        series = sorted(samples.series(definition))
        if series and (not wanted.names or not wanted.names.isdisjoint(_names(definition))):
            yield _family(definition, series, fleet, wanted, origins)


def _names(definition: Definition) -> tuple[str, ...]:
    endings = ("", "_bucket", "_count", "_sum") if isinstance(definition, HistogramDefinition) else ("",)
    return tuple(definition.name + ending for ending in endings)


def _family(
    definition: Definition,
    series: Iterable[tuple[Labels, Numbers]],
    fleet: str,
    wanted: ScrapeOptions,
    origins: Origins,
) -> prometheus.Metric:
    names = (_FLEET, *definition.labels)
    shown = (((fleet, *map(printable, labels)), labels, numbers) for labels, numbers in series)
    if isinstance(definition, HistogramDefinition):
        histogram = prometheus.HistogramMetricFamily(definition.name, definition.help, labels=names)
        for values, labels, numbers in shown:
            exemplars = origins.exemplars.get((definition.name, labels), {})
            histogram.add_metric(values, _buckets(definition, numbers, exemplars), numbers[-1])
            at = origins.created_at(definition, labels) if wanted.created else None
            if at is not None:
                own = dict(zip(names, values, strict=True))
                histogram.samples.append(prometheus.Sample(f"{definition.name}_created", own, at))
        return histogram
    if isinstance(definition, CounterDefinition):
        counter = prometheus.CounterMetricFamily(definition.name, definition.help, labels=names)
        for values, labels, numbers in shown:
            counter.add_metric(values, numbers[0], origins.created_at(definition, labels) if wanted.created else None)
        return counter
    gauge = prometheus.GaugeMetricFamily(definition.name, definition.help, labels=names)
    for values, _, numbers in shown:
        gauge.add_metric(values, numbers[0])
    return gauge


def _buckets(
    definition: HistogramDefinition, numbers: Numbers, exemplars: Mapping[int, prometheus.Exemplar]
) -> list[tuple[str, float] | tuple[str, float, prometheus.Exemplar]]:
    bounds = [*map(str, definition.buckets), "+Inf"]
    counts = accumulate(numbers[:-1])
    return [
        (bound, count, exemplars[index]) if index in exemplars else (bound, count)
        for index, (bound, count) in enumerate(zip(bounds, counts, strict=True))
    ]


_MAX_CHARACTERS: Final = 100  # OpenMetrics permits 128 for all labels of an exemplar with their names


class Exemplars:
    """The last task seen in each bucket of each lag histogram."""

    def __init__(self, label_of: Callable[[str], str]) -> None:
        self._label_of = label_of
        self._taken: set[bytes] = set()  # the entries of running tasks that have already become exemplars
        self.by_series: dict[tuple[str, Labels], dict[int, prometheus.Exemplar]] = {}

    def take(self, fleet: Iterable[Member], clock_offset_seconds: float, known: Iterable[Labels]) -> None:
        """Take exemplars from the running tasks.

        `clock_offset_seconds`: Redis time minus the local wall clock. `known`: the label sets of the lag histograms
        that are shown.
        """
        shown = frozenset(known)
        taken = set()
        for running in (task for member in fleet for task in member.tasks):
            entry = running.task.entry
            if entry in self._taken or self._take(running, clock_offset_seconds, shown):
                taken.add(entry)
        self._taken = taken

    def _take(self, running: MemberTask, clock_offset_seconds: float, shown: frozenset[Labels]) -> bool:
        """Make a running task the exemplar of its bucket, and return True. Returns False if the task's entry is not
        valid or its series is not shown.
        """
        at = time.time() - running.age_seconds
        try:
            entry = parse_entry(running.task.entry)
            lag = max(0.0, at + clock_offset_seconds - entry.due_us / MICROSECONDS)
        except (ValueError, LookupError, ArithmeticError):  # A task can write anything into its slot.
            return False
        labels = self._label_of(entry.queue), entry.kind.label
        if labels not in shown or not is_name(entry.id) or len(entry.id) > _MAX_CHARACTERS:
            return False
        of_series = self.by_series.setdefault((TASK_LAG.name, labels), {})
        of_series[bisect_left(TASK_LAG.buckets, lag)] = prometheus.Exemplar({"task_id": entry.id}, lag, at)
        return True
