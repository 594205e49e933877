"""The data for scrapes, the status page and health probes: the contents of the slots and the queues, and values
computed from these. Health depends only on the slots, so it is available even while Redis does not reply.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from rota import __version__
from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import MASTER_SLOT, Phase, Slot, boottime_ns
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import PROTOCOL_VERSION, is_name
from rota.protocol.views import QueueState
from rota.telemetry import metrics as m
from rota.telemetry.metrics import OTHER, Definition, QueueLabels, Writer
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.exporter.exposition import Exemplars, Exposition, Origins, ScrapeOptions, exposition
from rota_supervisor.exporter.history import History, ProblemWatch, Recent, RecentProblems
from rota_supervisor.exporter.queue_watch import QueueReading, ShownQueues, as_one, queue_row
from rota_supervisor.exporter.regions import Regions, exact, starts, touched
from rota_supervisor.exporter.series import Fold, Folding, Labels, Samples, SeriesBound, zeroes
from rota_supervisor.fleet_snapshot import Health, Member, Moment, liveness, member_in, readiness
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import Json, MasterSnapshot, NodeThroughput, PoolInBackoff
from rota_supervisor.process import Usage, parent_of, usage_of

# The gauge for each value in `queue_row`
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

_ALL_SHOWN: Final = Fold()

_SET_BY_ITS_PROCESS: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.DRAINING, Phase.QUIET})

# If more records than this change in a step, the work is spread over the next step. In an idle fleet, fewer change.
_FEW_CHANGED: Final = 200


class Probe:
    """The reader of the data for health probes. It reads the slots of `memory`, which takes about a millisecond and
    never waits.

    Two threads must not use an instance at the same time, so each thread has its own.
    """

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int) -> None:
        self._settings = settings
        self._memory = memory
        self._master_pid = master_pid
        self._shared_text = SharedText(memory.slot(MASTER_SLOT).far_spare)

    def alive(self) -> Health:
        return liveness(self._members((MASTER_SLOT,)), self._settings.tick_seconds)

    def ready(self) -> Health:
        return readiness(self.fleet(), self.master_snapshot(), boottime_seconds(), self._settings.heartbeat_limits)

    def fleet(self) -> tuple[Member, ...]:
        """Return the living processes, in the order of their slots. Slots that were never written to are not read."""
        return () if self._settings.is_standalone else self._members(touched(self._memory))

    def _members(self, slots: Iterable[int]) -> tuple[Member, ...]:
        now_ns = boottime_ns()
        pid = self._master_pid
        found = (member_in(number, self._memory.slot(number), now_ns) for number in slots)
        # Only the master and its children count, because an unrelated process may have received the pid of a dead
        # child.
        return tuple(each for each in found if each.pid == pid or (each.pid and parent_of(each.pid) == pid))

    def master_snapshot(self) -> MasterSnapshot:
        """Return the snapshot that the master published last."""
        return MasterSnapshot.from_json(self._shared_text.read())

    def stray_lists(self, fleet: Iterable[Member]) -> tuple[Json, ...]:
        """Return the lists in Redis that look like queues but are not, as found by this node's pollers. Each has a
        `key`, and a `fault` that states why it is not a queue.
        """
        pollers = (member.slot for member in fleet if member.role is Role.POLLER)
        texts = (SharedText(self._memory.slot(slot).spare).read() for slot in pollers)
        return tuple(row for text in texts if text for row in json.loads(text))


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of the fleet at one moment."""

    at: Moment
    fleet: tuple[Member, ...]  # the living processes
    samples: Samples
    recent: Recent  # the history of the last minutes
    reading: QueueReading | None  # the queues, or None if Redis did not reply
    master_snapshot: MasterSnapshot  # the last snapshot that the master published
    problems: RecentProblems = field(default_factory=RecentProblems)
    stray_lists: tuple[Json, ...] = ()


class OwnSlot(NamedTuple):
    """The parts of its own slot that the exporter writes: its counters, and the throughput and lag of this node. The
    master reads the throughput and lag.
    """

    recorder: Recorder
    shared_text: SharedText

    @classmethod
    def of(cls, slot: Slot) -> "OwnSlot":
        return cls(Recorder(slot.metrics), SharedText(slot.spare))


class Observer:
    """The observer of the fleet. It reads the slots of `memory`, and calls `read_queues` to read the queues.

    `read_queues` returns None while Redis does not reply. The observer writes its own counters to `own`, and every few
    seconds also the throughput and lag of this node. Two threads must not use an observer at the same time.
    """

    def __init__(
        self,
        settings: ExporterSettings,
        memory: SlotMemory,
        master_pid: int,
        read_queues: Callable[[], QueueReading | None],
        own: OwnSlot,
    ) -> None:
        self._settings = settings
        self._read_queues = read_queues
        self._queues_read_at = time.monotonic()  # when the queues were last read (monotonic)
        self._probe = Probe(settings, memory, master_pid)
        self._cpu = CpuTotals()
        self._history = History()
        self._problems = ProblemWatch()
        names = [queue.name for queue in settings.queues]
        self._bound = SeriesBound(names)
        self._folding = Folding(settings.max_series, names)
        self._dropped = own.recorder.counter(m.SERIES_DROPPED)
        self._shared_text = own.shared_text
        self._is_busy = False  # whether many records had changed at the last call of `add_up`
        self._regions = Regions(memory, self._bound)
        if not settings.is_standalone:
            self._regions.create_zeros(zeroes(names))
        self._exemplars = Exemplars(QueueLabels(names).of)

    def scrape(self, wanted: ScrapeOptions) -> Exposition:
        """Return the response to a scrape."""
        began = time.monotonic()
        seen = self.observe()
        samples = self._shown(seen)
        offset = 0.0 if seen.reading is None else seen.reading.clock_offset_seconds
        self._exemplars.take(seen.fleet, offset, (labels for labels, _ in samples.series(m.TASK_LAG)))
        origins = Origins(partial(self._created_at, samples.value(m.START_TIME)), self._exemplars.by_series)
        return exposition(samples, self._settings.server.namespace, wanted, origins, began)

    def _shown(self, seen: Observation) -> Samples:
        """Return all series as they appear in a scrape. Queues for which there is no room are merged into one."""
        is_standalone = self._settings.is_standalone
        samples = seen.samples
        if not is_standalone:
            put_processes(samples, seen.fleet)
            put_starts_held(samples, seen.master_snapshot.held)
        fold = self._folding.choose(samples, self._not_configured(seen.reading))
        self._dropped.add(self._folding.take_folded())
        shown = fold.apply(samples)
        put_settings(shown, self._settings.queues, __version__, self._settings.forgotten_seconds, fold)
        put_folded(shown, self._settings.queues, fold, samples)
        if not is_standalone:
            put_running(shown, seen.fleet, self._settings.queues, fold)
        if seen.reading is not None:
            put_reading(shown, seen.reading, fold)
        return shown

    def _not_configured(self, reading: QueueReading | None) -> list[str]:
        """Return the queues in Redis that no tier names. Queues that match a pattern come first."""
        configured = {queue.name for queue in self._settings.queues}
        shown = None if reading is None else reading.shown
        others = (
            [] if shown is None else [each.queue for each in shown.queues if each.queue not in configured | {OTHER}]
        )
        return sorted(others, key=lambda name: shown is None or name not in shown.pattern_of)

    def _created_at(self, started_at: float | None, definition: Definition, labels: Labels) -> float | None:
        """Return a time at which the series was still 0: the last reading before it was first seen, or else the
        master's start. Returns None if no such time is known."""
        if definition is m.TASK_STARTS:
            definition = m.TASK_LAG
        if definition.writers == (Writer.EXPORTER,):  # These counts come from Redis, without a start time.
            return None
        return self._regions.born_at(definition, labels) or started_at

    def observe(self) -> Observation:
        """Return the current state of the fleet and of the queues."""
        began = time.monotonic()
        reading = self._read_queues()
        fleet, samples = self._read_slots()
        if reading is not None:
            self._queues_read_at = reading.read_at
        if self._settings.reads_redis:
            samples.put(m.QUEUE_STATES_AGE, (), time.monotonic() - self._queues_read_at)
        return Observation(
            Moment(boottime_seconds(), time.time()),
            fleet,
            samples,
            self._history.recent(samples, began),
            reading,
            self._probe.master_snapshot(),
            self._problems.recent(),
            self._probe.stray_lists(fleet),
        )

    def note_history(self) -> None:
        """Add the current values to the history if a step has ended. Call this method about every second.

        While many records change, the slots are read in every call, and not only when a step has ended. This spreads
        the work over the step.
        """
        now = time.monotonic()
        is_due = self._history.is_due(now)
        if is_due or self._is_busy:
            self._is_busy = self._regions.add_up() > _FEW_CHANGED
        if is_due:
            samples = self._regions.read((MASTER_SLOT,))
            self._history.note(samples, now)
            self._problems.note(samples)
            self._shared_text.publish(throughput_of(self._history.recent(samples, now), boottime_seconds()).to_json())

    def _read_slots(self) -> tuple[tuple[Member, ...], Samples]:
        fleet = self._probe.fleet()
        living = (
            {MASTER_SLOT} if self._settings.is_standalone else {member.slot for member in fleet if _has_started(member)}
        )
        samples = self._regions.read(living)
        self._dropped.add(self._bound.take_refused())
        for labels, count in starts(samples):
            samples.put(m.TASK_STARTS, labels, count)
        usages = {member: usage for member in fleet if (usage := usage_of(member.pid))}
        put_usage(samples, usages)
        self._cpu.put(samples, usages)
        return fleet, samples


def _has_started(member: Member) -> bool:
    """Whether the process has started, so that the gauges in its slot are its own. Until then, its slot still has the
    gauges of the previous process.
    """
    return member.role is Role.MASTER or member.phase in _SET_BY_ITS_PROCESS


def throughput_of(recent: Recent, now: float) -> NodeThroughput:
    """Return the throughput and the lag of this node."""
    starts = recent.overall
    return NodeThroughput(now, round(recent.rates[0], 3), starts.lag(0.5), starts.lag(0.99), starts.share_late)


def put_settings(
    samples: Samples, queues: Iterable[QueueSettings], version: str, forgotten_seconds: float, fold: Fold = _ALL_SHOWN
) -> None:
    """Add the settings of each queue that is shown by name, and the version, to the samples."""
    for queue in queues:
        if not fold.has_queue(queue.name):
            samples.put(m.QUEUE_LAG_OBJECTIVE, (queue.name,), queue.lag_objective_seconds)
            samples.put(m.QUEUE_LAG_TARGET, (queue.name,), queue.lag_target)
            samples.put(m.QUEUE_WEIGHT, (queue.name,), queue.weight)
    samples.put(m.BUILD_INFO, (version, str(PROTOCOL_VERSION)), 1)
    samples.put(m.FORGOTTEN_AFTER, (), forgotten_seconds)


def put_folded(samples: Samples, queues: Sequence[QueueSettings], fold: Fold, all_starts: Samples) -> None:
    """Add to the samples how many queues have their own series, how many are merged into one, and the settings of the
    merged queue.

    The lag target of the merged queue is the mean of the targets of its queues, weighted by how many starts each queue
    has in `all_starts`. So the merged queue allows as many late starts as all of its queues together.
    """
    folded = [queue for queue in queues if fold.has_queue(queue.name)]
    samples.put(m.QUEUES_SHOWN, (), len(queues) - len(folded))
    samples.put(m.QUEUES_FOLDED, (), len(folded))
    if not folded:
        return
    started = Counter({queue.name: 1.0 for queue in folded})
    started.update({queue: count for (queue, _), (count,) in all_starts.series(m.TASK_STARTS) if queue in started})
    weighted = sum(queue.lag_target * started[queue.name] for queue in folded)
    samples.put(m.QUEUE_LAG_TARGET, (OTHER,), weighted / started.total())
    samples.put(m.QUEUE_LAG_OBJECTIVE, (OTHER,), max(queue.lag_objective_seconds for queue in folded))
    samples.put(m.QUEUE_WEIGHT, (OTHER,), sum(queue.weight for queue in folded))


def put_processes(samples: Samples, fleet: Iterable[Member]) -> None:
    """Add the age of each process's last heartbeat to the samples."""
    for member in fleet:
        if member.role is not Role.ZYGOTE:  # A zygote sends no heartbeats, because it waits in a blocking call.
            samples.put(m.HEARTBEAT_AGE, (member.role, str(member.slot)), member.heartbeat_age_seconds)


def put_running(
    samples: Samples, fleet: Iterable[Member], queues: Sequence[QueueSettings], fold: Fold = _ALL_SHOWN
) -> None:
    """Add to the samples how long the longest running task of each queue has run. Also add a worst lag of 0 for each
    queue that has no worst lag yet.
    """
    labels = QueueLabels(queue.name for queue in queues)
    running = (task for member in fleet for task in member.tasks)
    ages = [(labels.of(each.task.queue), each.age_seconds) for each in running if is_name(each.task.queue)]
    for queue, age in (*((queue.name, 0.0) for queue in queues), *ages):
        samples.raise_to(m.QUEUE_OLDEST_RUNNING_AGE, (fold.queue(queue),), (age,))
    for name in {fold.queue(queue.name) for queue in queues}:
        samples.raise_to(m.TASK_LAG_WORST, (name,), (0.0,))


def put_starts_held(samples: Samples, held: Iterable[PoolInBackoff]) -> None:
    """Add to the samples whether the master delays the starts of processes (back-off), according to its snapshot.

    There is one series for each pool and one for each other role, regardless of the generation.
    """
    names = [(str(Role.WORKER), pool) for (pool,), _ in samples.series(m.WORKERS_DESIRED)]
    names += [(role, "") for role in m.CHILD_ROLES if role != Role.WORKER]
    are_delayed = {(row.role, row.pool if row.role == Role.WORKER else "") for row in held}
    for name in names:
        samples.put(m.STARTS_HELD, name, name in are_delayed)


def put_usage(samples: Samples, usages: Mapping[Member, Usage]) -> None:
    """Add the memory and the open descriptors of each process to the samples."""
    for member, usage in usages.items():
        labels = (str(member.role), str(member.slot))
        samples.put(m.PROCESS_RESIDENT_MEMORY, labels, usage.resident_bytes)
        if usage.open_fds is not None:
            samples.put(m.PROCESS_OPEN_FDS, labels, usage.open_fds)


def put_reading(samples: Samples, reading: QueueReading, fold: Fold = _ALL_SHOWN) -> None:
    """Add the data from Redis to the samples: the queues, and the values of the whole fleet."""
    _put_queues(samples, reading.shown, fold)
    samples.put(m.CONSUMERS, (), reading.consumers.total)
    samples.put(m.CONSUMER_HELD_TASKS, (), reading.consumers.held)
    samples.put(m.GROUPS_OPEN, (), reading.groups.total)
    for outcome, count in reading.groups.ended.items():
        samples.put(m.GROUPS_ENDED, (outcome,), count)
    samples.put(m.AUDIT_MISSING, (), reading.missing_tasks)
    samples.put(m.REDIS_CLOCK_OFFSET, (), reading.clock_offset_seconds)


def _put_queues(samples: Samples, shown: ShownQueues, fold: Fold) -> None:
    """Add the queues to the samples. The number of accepted tasks and the age of the oldest task of a pattern cover all
    queues that match the pattern.
    """
    for state in states_of(shown, fold):
        row = queue_row(state)
        for key, definition in _OF_QUEUES.items():
            samples.put(definition, (state.queue,), row[key])
        samples.put(m.QUEUE_CLOSED, (state.queue,), bool(state.closed_by))
    for label, accepted in shown.accepted.items():
        samples.add(m.TASKS_ENQUEUED, (fold.queue(label),), (accepted,))
    for queue in shown.pattern_of:
        if not fold.has_queue(queue):
            samples.put(m.QUEUE_PATTERN, (queue, shown.pattern_of[queue]), 1)
    closed = {shown.pattern_of.get(state.queue) for state in shown.queues if state.closed_by}
    for pattern, age_us in shown.oldest_ready_us.items():
        samples.raise_to(m.QUEUE_CLOSED, (fold.queue(pattern),), (pattern in closed,))
        samples.raise_to(m.QUEUE_OLDEST_READY_AGE, (fold.queue(pattern),), (age_us / MICROSECONDS,))


def states_of(shown: ShownQueues, fold: Fold) -> Iterator[QueueState]:
    """Yield the state of each queue that is shown by name, and then of all other queues merged into one."""
    as_other = [state for state in shown.queues if fold.queue(state.queue) == OTHER]
    yield from (state for state in shown.queues if fold.queue(state.queue) != OTHER)
    if as_other:
        yield as_one(as_other)


class CpuTotals:
    """The processor time of each slot. It is the time of the slot's dead processes, which the master has counted, plus
    the time of the living process.

    The sum never decreases. If a process has just died and the master has not counted its time yet, the previous sum is
    kept. The same applies while a process is being reaped, because Linux before 6.8 then reports no processor time for
    it.
    """

    def __init__(self) -> None:
        self._shown: dict[Labels, float] = {}

    def put(self, samples: Samples, usages: Mapping[Member, Usage]) -> None:
        """Add the time of living processes to the time of dead processes in `samples`.

        `usages` must be read after `samples`, so that a process that dies in between is omitted instead of being
        counted twice.
        """
        for member, usage in usages.items():
            samples.add(m.PROCESS_CPU, (str(member.role), str(member.slot)), (exact(usage.cpu_seconds),))
        for labels, (seconds,) in samples.series(m.PROCESS_CPU):
            self._shown[labels] = max(seconds, self._shown.get(labels, 0.0))
        for labels, seconds in self._shown.items():
            samples.put(m.PROCESS_CPU, labels, seconds)
