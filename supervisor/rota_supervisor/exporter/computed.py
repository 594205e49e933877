"""What the exporter computes itself: pure functions from what was read to samples."""

from collections.abc import Iterable, Mapping

from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.names import is_name
from rota.protocol.views import QueueState
from rota.telemetry import metrics as m
from rota_supervisor.exporter.fleet import Member
from rota_supervisor.exporter.kernel import Usage
from rota_supervisor.exporter.queues import QueueReading
from rota_supervisor.exporter.samples import Samples
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import Role, role_of

# A zygote sits in one blocking call and does not beat.
_BEATING = frozenset({Role.MASTER, Role.EXPORTER, Role.POLLER, Role.WORKER})


def put_settings(samples: Samples, settings: ExporterSettings, version: str, started_at: float) -> None:
    """What the configuration says of each queue, and who we are."""
    for queue in settings.queues:
        samples.put(m.QUEUE_LAG_OBJECTIVE, (queue.name,), queue.lag_objective_seconds)
        samples.put(m.QUEUE_LAG_TARGET, (queue.name,), queue.lag_target)
        samples.put(m.QUEUE_WEIGHT, (queue.name,), queue.weight)
    samples.put(m.BUILD_INFO, (version, str(PROTOCOL_VERSION), settings.server.namespace), 1)
    samples.put(m.START_TIME, (), started_at)


def put_fleet(samples: Samples, fleet: Iterable[Member], queues: Iterable[QueueSettings]) -> None:
    """Heartbeats, and the longest running task of each queue."""
    oldest = {queue.name: 0.0 for queue in queues}
    for member in fleet:
        if member.role in _BEATING:
            samples.put(m.HEARTBEAT_AGE, (member.role, str(member.slot)), member.beat_age_seconds)
        if member.task is not None and is_name(queue := member.task.queue):  # a task may write anything there
            oldest[queue] = max(oldest.get(queue, 0.0), member.task_age_seconds)
    for queue, age in oldest.items():
        samples.put(m.QUEUE_OLDEST_RUNNING_AGE, (queue,), age)


def put_usage(samples: Samples, usages: Mapping[Member, Usage]) -> None:
    """Memory and descriptors of each process."""
    for member, usage in usages.items():
        labels = (str(member.role), str(member.slot))
        samples.put(m.PROCESS_RESIDENT_MEMORY, labels, usage.resident_bytes)
        if usage.open_fds is not None:
            samples.put(m.PROCESS_OPEN_FDS, labels, usage.open_fds)


def put_reading(samples: Samples, reading: QueueReading) -> None:
    """The queues as Redis has them."""
    for queue in reading.overview.queues:
        _put_queue(samples, queue)
    samples.put(m.AUDIT_MISSING, (), reading.missing_tasks)
    samples.put(m.REDIS_CLOCK_OFFSET, (), reading.clock_offset_seconds)


def _put_queue(samples: Samples, queue: QueueState) -> None:
    labels = (queue.queue,)
    samples.put(m.QUEUE_READY, labels, queue.ready)
    samples.put(m.QUEUE_SCHEDULED, labels, queue.scheduled)
    samples.put(m.QUEUE_OVERDUE, labels, queue.overdue)
    samples.put(m.QUEUE_INFLIGHT, labels, queue.inflight)
    samples.put(m.QUEUE_DEAD, labels, queue.dead)
    samples.put(m.QUEUE_OLDEST_READY_AGE, labels, queue.oldest_ready_age_us / MICROSECONDS)
    samples.put(m.QUEUE_OLDEST_OVERDUE_AGE, labels, queue.oldest_overdue_age_us / MICROSECONDS)
    samples.put(m.QUEUE_PAUSED, labels, queue.paused)
    samples.put(m.QUEUE_SERVED, labels, queue.served)
    samples.put(m.TASKS_ENQUEUED, labels, queue.accepted)


class CpuAccount:
    """Adds up processor time over the processes of each slot, so that the counter never goes back.

    A slot that stands empty, as between two workers, keeps its total: a series that came and went would look
    like a counter reset.
    """

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._last: dict[int, tuple[int, float]] = {}

    def put(self, samples: Samples, usages: Mapping[Member, Usage]) -> None:
        """Account for these processes, and show the totals of all slots."""
        for member, usage in usages.items():
            pid, seconds = self._last.get(member.slot, (member.pid, 0.0))
            if pid != member.pid:
                self._before[member.slot] = self._before.get(member.slot, 0.0) + seconds
                seconds = 0.0
            # Linux before 6.8 shows a process as having used nothing in the instant in which it is reaped.
            self._last[member.slot] = (member.pid, max(seconds, usage.cpu_seconds))
        for slot, (_, seconds) in self._last.items():
            total = self._before.get(slot, 0.0) + seconds
            samples.put(m.PROCESS_CPU, (str(role_of(slot)), str(slot)), total)
