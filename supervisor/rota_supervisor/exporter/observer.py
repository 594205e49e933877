"""Everything that a scrape or the status page needs to know: what the slots recorded, and what is computed here."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from rota import __version__
from rota.child.slot_memory import SlotMemory
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.names import is_name
from rota.telemetry import label_values
from rota.telemetry import metrics as m
from rota.telemetry.definition import CounterDefinition, Definition, HistogramDefinition, Writer
from rota.telemetry.queue_labels import QueueLabels
from rota_supervisor.exporter.fleet import Health, Member, Probe, Usage, started_at, usage_of
from rota_supervisor.exporter.lag import Lag, LagWindow
from rota_supervisor.exporter.libraries import prometheus
from rota_supervisor.exporter.queues import QueueReading, queue_row
from rota_supervisor.exporter.samples import Labels, Samples, empty_families, families
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import Role, role_of
from rota_supervisor.notice import Json

# The values of labels that are fixed sets; `reason` means something else in each metric.
_FIXED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    m.TASKS_RECOVERED.name: {"reason": label_values.RECOVERY_REASONS},
    m.PROCESS_RESTARTS.name: {"role": label_values.CHILD_ROLES, "reason": label_values.RESTART_REASONS},
    m.CONFIG_RELOADS.name: {"result": label_values.RELOAD_RESULTS},
}
# The gauge of each number in `queue_row`.
_OF_QUEUES: Final = {
    "ready": m.QUEUE_READY,
    "scheduled": m.QUEUE_SCHEDULED,
    "overdue": m.QUEUE_OVERDUE,
    "inflight": m.QUEUE_INFLIGHT,
    "dead": m.QUEUE_DEAD,
    "oldest_ready_age_seconds": m.QUEUE_OLDEST_READY_AGE,
    "oldest_overdue_age_seconds": m.QUEUE_OLDEST_OVERDUE_AGE,
    "paused": m.QUEUE_PAUSED,
    "served": m.QUEUE_SERVED,
    "closed_age_seconds": m.QUEUE_CLOSED_AGE,
}


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen at one time: the living processes, all samples, the lag of the last minutes by queue,
    the queues if Redis answered, whether this node takes work, and the pools whose starts are held back."""

    fleet: tuple[Member, ...]
    samples: Samples
    lags: Mapping[str, Lag]
    reading: QueueReading | None
    ready: Health
    held: tuple[Json, ...] = ()


class Observer:
    """Reads the slots of `memory`, and the queues with `read_queues`, which returns None while Redis does not answer.
    Also a collector of prometheus_client. Not safe for two threads at once."""

    def __init__(
        self,
        settings: ExporterSettings,
        memory: SlotMemory,
        master_pid: int,
        read_queues: Callable[[], QueueReading | None],
    ) -> None:
        self._settings = settings
        self._started_at = started_at(master_pid)
        self._read_queues = read_queues
        self._probe = Probe(settings, memory, master_pid)
        self._regions = self._probe.regions
        self._cpu = CpuTotals()
        self._lag = LagWindow()
        self._zeroes = list(zeroes(queue.name for queue in settings.queues))
        for definition, labels in self._zeroes:
            self._regions.bound.keep(definition, labels)

    def collect(self) -> Iterator[prometheus.Metric]:
        """Yield the families of a scrape, for prometheus_client's registry."""
        return families(self.observe().samples, self._settings.server.namespace)

    def describe(self) -> Iterator[prometheus.Metric]:
        """Yield which metrics `collect` may give, so that a scrape can ask for some (`?name[]=`)."""
        return empty_families()

    def observe(self) -> Observation:
        began = time.monotonic()
        reading = self._read_queues()
        fleet, samples = self._read_slots()
        lags = self._lag.lags(samples, began)
        put_settings(samples, self._settings, __version__, self._started_at)
        put_fleet(samples, fleet, self._settings.queues)
        held = self._probe.held()
        put_held(samples, held)
        if reading is not None:
            put_reading(samples, reading)
        samples.put(m.COLLECT_SECONDS, (), time.monotonic() - began)
        return Observation(fleet, samples, lags, reading, self._probe.ready(), held)

    def note_lag(self) -> None:
        """Remember how the lag stands now, if it is time to; to be called every second or so."""
        now = time.monotonic()
        if self._lag.is_due(now):
            self._lag.note(self._regions.read(()), now)

    def _read_slots(self) -> tuple[tuple[Member, ...], Samples]:
        fleet = self._probe.fleet()
        samples = self._regions.read({member.slot for member in fleet if member.has_begun})
        for definition, labels in self._zeroes:
            samples.add(definition, labels, (0.0,) * definition.numbers)
        samples.add(m.SERIES_DROPPED, (), (float(self._regions.bound.refused),))
        usages = {member: usage for member in fleet if (usage := usage_of(member.pid))}
        put_usage(samples, usages)
        self._cpu.put(samples, usages)
        return fleet, samples


def zeroes(queues: Iterable[str]) -> Iterator[tuple[Definition, Labels]]:
    """Yield the series that exist at 0 from the start, so that the first event already counts in a `rate()`: of every
    recorded counter and histogram whose label values are known beforehand, as each queue and each kind are."""
    known = {"queue": tuple(queues), "kind": label_values.KINDS}
    for definition in m.ALL:
        values = known | _FIXED.get(definition.name, {})
        is_recorded = isinstance(definition, CounterDefinition | HistogramDefinition) and definition.writers != (
            Writer.EXPORTER,
        )
        if is_recorded and values.keys() >= set(definition.labels):
            yield from ((definition, labels) for labels in product(*(values[label] for label in definition.labels)))


def put_settings(samples: Samples, settings: ExporterSettings, version: str, started_at: float) -> None:
    """Put what the configuration says of each queue, and who we are."""
    for queue in settings.queues:
        samples.put(m.QUEUE_LAG_OBJECTIVE, (queue.name,), queue.lag_objective_seconds)
        samples.put(m.QUEUE_LAG_TARGET, (queue.name,), queue.lag_target)
        samples.put(m.QUEUE_WEIGHT, (queue.name,), queue.weight)
    samples.put(m.BUILD_INFO, (version, str(PROTOCOL_VERSION)), 1)
    samples.put(m.START_TIME, (), started_at)
    samples.put(m.FORGOTTEN_AFTER, (), settings.forgotten_seconds)


def put_fleet(samples: Samples, fleet: Iterable[Member], queues: Iterable[QueueSettings]) -> None:
    """Put heartbeats, the longest running task of each queue, and that nothing started late where nothing did."""
    oldest = {queue.name: 0.0 for queue in queues}
    for queue in oldest:
        samples.raise_to(m.TASK_LAG_WORST, (queue,), (0.0,))
    labels = QueueLabels(oldest)
    for member in fleet:
        if member.role is not Role.ZYGOTE:  # it sits in one blocking call and does not beat
            samples.put(m.HEARTBEAT_AGE, (member.role, str(member.slot)), member.beat_age_seconds)
        for running in member.tasks:
            if is_name(queue := running.task.queue):  # a task may write anything there
                label = labels.of(queue)
                oldest[label] = max(oldest.get(label, 0.0), running.age_seconds)
    for queue, age in oldest.items():
        samples.put(m.QUEUE_OLDEST_RUNNING_AGE, (queue,), age)


def put_held(samples: Samples, held: Iterable[Json]) -> None:
    """Put whether starts are held back, by the rows of the master's notice: of the pools that there are, and of the
    other roles, for which it does not matter which generation they are of."""
    names = [(str(Role.WORKER), pool) for (pool,), _ in samples.series(m.WORKERS_DESIRED)]
    names += [(role, "") for role in label_values.CHILD_ROLES if role != Role.WORKER]
    are_held = {(row["role"], row["pool"] if row["role"] == Role.WORKER else "") for row in held}
    for name in names:
        samples.put(m.STARTS_HELD, name, name in are_held)


def put_usage(samples: Samples, usages: Mapping[Member, Usage]) -> None:
    """Put memory and descriptors of each process."""
    for member, usage in usages.items():
        labels = (str(member.role), str(member.slot))
        samples.put(m.PROCESS_RESIDENT_MEMORY, labels, usage.resident_bytes)
        if usage.open_fds is not None:
            samples.put(m.PROCESS_OPEN_FDS, labels, usage.open_fds)


def put_reading(samples: Samples, reading: QueueReading) -> None:
    """Put the queues as Redis has them; `accepted` and the age of patterns are of all their queues."""
    shown = reading.shown
    for state in shown.queues:
        row = queue_row(state)
        for key, definition in _OF_QUEUES.items():
            samples.put(definition, (state.queue,), row[key])
        samples.put(m.QUEUE_CLOSED, (state.queue,), bool(state.closed_by))
    for label, accepted in shown.accepted.items():
        samples.put(m.TASKS_ENQUEUED, (label,), accepted)
    for labels in shown.pattern_of.items():
        samples.put(m.QUEUE_PATTERN, labels, 1)
    closed = {shown.pattern_of.get(state.queue) for state in shown.queues if state.closed_by}
    for pattern, age_us in shown.oldest_ready_us.items():
        samples.put(m.QUEUE_CLOSED, (pattern,), pattern in closed)
        samples.put(m.QUEUE_OLDEST_READY_AGE, (pattern,), age_us / MICROSECONDS)
    samples.put(m.CONSUMERS, (), reading.consumers.total)
    samples.put(m.CONSUMER_HELD_TASKS, (), reading.consumers.held)
    samples.put(m.GROUPS_OPEN, (), reading.groups.total)
    for outcome, count in reading.groups.ended.items():
        samples.put(m.GROUPS_ENDED, (outcome,), count)
    samples.put(m.AUDIT_MISSING, (), reading.missing_tasks)
    samples.put(m.REDIS_CLOCK_OFFSET, (), reading.clock_offset_seconds)


class CpuTotals:
    """Adds up processor time over the processes of each slot, so that the counter never goes back.

    A slot that stands empty, as between two workers, keeps its total: a series that came and went would look
    like a counter reset.
    """

    def __init__(self) -> None:
        self._by_slot: dict[int, tuple[int, float, float]] = {}  # the last process, its seconds, those before it

    def put(self, samples: Samples, usages: Mapping[Member, Usage]) -> None:
        """Count these processes in, and put the totals of all slots."""
        for member, usage in usages.items():
            pid, seconds, before = self._by_slot.get(member.slot, (member.pid, 0.0, 0.0))
            if pid != member.pid:
                before, seconds = before + seconds, 0.0
            # Linux before 6.8 shows a process as having used nothing in the instant in which it is reaped.
            self._by_slot[member.slot] = (member.pid, max(seconds, usage.cpu_seconds), before)
        for slot, (_, seconds, before) in self._by_slot.items():
            samples.put(m.PROCESS_CPU, (str(role_of(slot)), str(slot)), before + seconds)
