"""The log lines and metrics of a poller."""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence

from rota.child.slot_memory import SharedText
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import AT_MOST_ONCE
from rota.protocol.replies import AdoptedLegacy, AdoptedScheduled, LegacySource, Promoted, Reaped, Swept
from rota.protocol.wire import shown
from rota.server.server_errors import PushedBack, Refused
from rota.telemetry import log, log_events, metrics
from rota.telemetry.log import OnceAMinute
from rota.telemetry.recorder import Recorder

_NO_TASK = ""  # the task name in log lines about tasks that scripts end, because scripts do not decode bodies
_NO_QUEUE = "unknown"  # the queue in metrics for members of the delayed set that become dead
# Maximum number of characters of a key to show. A key may have millions of characters, but the shared text in the slot
# has room for only 48,000.
_LONGEST = 300
_NAMED_IDS = 10  # maximum number of ids in a log line; the line also has the total, and `rota audit` lists all ids


class PollerReport:
    """The reports of a poller, which go to the log and to the metrics in the poller's slot."""

    def __init__(self, recorder: Recorder, slot_number: int, shared_text: SharedText) -> None:
        self._recorder = recorder
        self._shared_text = shared_text  # the slot may still hold the text of its previous process
        self._strays: Mapping[str, str] | None = None
        self._rescues = recorder.counter(metrics.DOORBELL_RESCUES)
        self._promote_seconds = recorder.histogram(metrics.REDIS_COMMAND, "promote")
        self._log_lines = log.LineCounters(recorder)
        self._orphans = recorder.gauge(metrics.INFLIGHT_ORPHANS)
        self._unplaced = recorder.gauge(metrics.AUDIT_UNPLACED)
        self._unplaced_ids: Sequence[str] = ()
        self._last_success = recorder.gauge(metrics.POLLER_LAST_SUCCESS, str(slot_number))
        self._grace_until_us = 0
        self._orphans.set(0)
        self.strays({})
        self._rarely = OnceAMinute()

    def promoted(self, promoted: Promoted, seconds: float) -> None:
        """Report a chunk of tasks that was promoted. The round trip took `seconds`."""
        self._promote_seconds.observe(seconds)
        for queue, moved in promoted.moved.items():
            self._recorder.counter(metrics.POLLER_PROMOTED, queue).add(moved)
        if promoted.buried:
            self._recorder.counter(metrics.TASKS_DEAD, _NO_QUEUE, _NO_TASK, "garbage").add(promoted.buried)
            log.logger().error(log_events.TASK_DEAD, reason="garbage", count=promoted.buried)
        for name in promoted.left_out:
            self._count_occurrences(name, skipped=1)
            log.logger().info(log_events.SCHEDULE_SKIPPED, schedule=shown(name))
        self._last_success.set(time.time())

    def checked(self) -> None:
        """Record that this poller has just checked for pending work."""
        self._log_lines.record()
        self._last_success.set(time.time())

    def swept(self, swept: Swept) -> None:
        """Report what a sweep has found."""
        self.checked()
        if swept.rescues:
            self._rescues.add(swept.rescues)
            log.logger().info(log_events.POLLER_RESCUED, doorbells=swept.rescues)
        if swept.grace_until_us > swept.now_us and swept.grace_until_us != self._grace_until_us:
            self._grace_until_us = swept.grace_until_us
            seconds = round((swept.grace_until_us - swept.now_us) / MICROSECONDS, 3)
            log.logger().info(log_events.POLLER_GRACE, grace_seconds=seconds)
        if not swept.is_leader:  # Only the leader reports these numbers.
            self._orphans.set(0)
            self._unplaced.set(math.nan)
            self.strays({})

    def reaped(self, owner: str, reaped: Reaped) -> None:
        """Report an owner whose lease had expired. Either the owner was reaped, or it renewed its lease in the
        meantime."""
        for entry in reaped.requeued:
            self._recorder.counter(metrics.TASKS_RECOVERED, entry.queue, "lease_expired").add()
            log.logger().warning(
                log_events.TASK_RECOVERED, task_id=entry.id, queue=entry.queue, owner=shown(owner), losses=entry.losses
            )
        for entry in reaped.dead:
            reason = AT_MOST_ONCE if entry.is_marked_started else "lost"
            self._recorder.counter(metrics.TASKS_DEAD, entry.queue, _NO_TASK, reason).add()
            log.logger().error(
                log_events.TASK_DEAD, task_id=entry.id, queue=entry.queue, owner=shown(owner), reason=reason
            )

    def adopted(self, adopted: AdoptedScheduled) -> None:
        """Report items that other programs had added to the delayed set, and that have become tasks or were set aside
        as dead at once."""
        self._dead_at_once(adopted.dead)

    def _dead_at_once(self, dead: Iterable[tuple[str, str]]) -> None:
        for queue, reason in dead:
            self._recorder.counter(metrics.TASKS_DEAD, queue, _NO_TASK, reason).add()
            log.logger().error(log_events.TASK_DEAD, queue=queue, reason=reason)

    def adopted_legacy(self, sources: Sequence[LegacySource], adopted: AdoptedLegacy) -> None:
        """Report a chunk of items that was taken from legacy lists. The chunk may be empty."""
        for source, found in zip(sources, adopted.sources, strict=True):
            self._recorder.gauge(metrics.ADOPT_WAITING, source.key).set(found.left)
            self._recorder.counter(metrics.ADOPTED, source.key).add(found.taken)
            self._recorder.counter(metrics.ADOPT_ERRORS, source.key).add(bool(found.fault))
            if found.fault and self._rarely.is_due("adopt_legacy", source.key):
                log.logger().error(log_events.ADOPT_FAILED, source=shown(source.key), error=shown(found.fault))
        self._dead_at_once(adopted.dead)

    def schedule_advanced(self, name: str, enqueued: int, missed: int) -> None:
        """Report how many occurrences of a schedule were enqueued, and how many were missed and will never run."""
        self._count_occurrences(name, enqueued=enqueued, missed=missed)
        if missed:
            log.logger().warning(log_events.SCHEDULE_MISSED, schedule=shown(name), count=missed)

    def _count_occurrences(self, name: str, **counts: int) -> None:
        for outcome in metrics.OCCURRENCE_OUTCOMES:
            self._recorder.counter(metrics.SCHEDULE_OCCURRENCES, name, outcome).add(counts.get(outcome, 0))

    def schedule_removed(self, name: str) -> None:
        """Report a schedule that was removed because no node declares it any longer."""
        log.logger().info(log_events.SCHEDULE_REMOVED, schedule=shown(name))

    def schedule_unreadable(self, name: str, error: str) -> None:
        """Report a schedule whose record this node cannot read. Nodes of another version may be able to read it."""
        if self._rarely.is_due("schedule", name):
            log.logger().error(log_events.SCHEDULE_UNREADABLE, schedule=shown(name), error=error)

    def unplaced(self, ids: Sequence[str]) -> None:
        """Report the tasks that a scan of the audit found to be live but not stored in any lane, set or list."""
        self._unplaced.set(len(ids))
        if ids and ids != self._unplaced_ids:
            named = [shown(task_id) for task_id in ids[:_NAMED_IDS]]
            log.logger().error(log_events.AUDIT_UNPLACED, count=len(ids), task_ids=named)
        self._unplaced_ids = ids

    def orphans(self, count: int) -> None:
        """Report the number of in-flight lists without a registered owner that a complete scan of the keys has
        found."""
        self._orphans.set(count)

    def strays(self, faults: Mapping[str, str]) -> None:
        """Report the keys that look like lanes but are not, each with the reason. The key scan calls this when it is
        complete."""
        if faults == self._strays:
            return
        self._strays = faults
        rows = [{"key": _clipped(key), "fault": _clipped(fault)} for key, fault in sorted(faults.items())]
        self._shared_text.publish(json.dumps(rows).encode())
        if rows:
            log.logger().warning(log_events.QUEUE_STRAY, keys=[row["key"] for row in rows])

    def refused(self, error: Refused | PushedBack, call: str, owner: str = "") -> None:
        """Report a call that the server refused. The poller continues without it.

        Of the refused calls for one `owner`, only the first in each minute is logged, because the others are most
        likely refused for the same reason.
        """
        self._recorder.counter(metrics.REDIS_ERRORS, error.reason).add()
        if self._rarely.is_due(call):
            log.logger().error(log_events.REDIS_REFUSED, call=call, owner=shown(owner), error=str(error))


def _clipped(text: str) -> str:
    """Escape the control characters in a text from the server, and shorten the text if it is too long."""
    safe = shown(text)
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}..."
