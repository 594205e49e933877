"""The log lines and metrics of a worker: one line for each attempt, and counters."""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from rota.child.child_settings import WorkerSettings
from rota.errors import Cancelled, Retry
from rota.protocol import outcome as outcomes
from rota.protocol.entry import MICROSECONDS, Entry, Kind
from rota.protocol.turns import TurnReply, TurnStatus
from rota.telemetry import log, log_events, metrics, recorder
from rota.telemetry.log_lines import Fields, Form
from rota.worker.attempt import NO_TASK, Attempt
from rota.worker.redis_times import Times

_SAMPLE_SECONDS: Final = 1.0  # with `log.tasks = "sample"`, at most one success per interval is logged
_DIGITS: Final = 6
# Maximum number of cached combinations of task, queue, kind and outcome. It is limited because a pattern may match many
# queues.
_FORMS: Final = 256
_LEVELS_WITH_SUCCESSES: Final = ("debug", "info")


class _OutcomeEvent(NamedTuple):
    """The log event of an outcome, and its level."""

    name: str
    level: str = "info"


_EVENTS: Final[dict[type[outcomes.Outcome], _OutcomeEvent]] = {
    outcomes.Done: _OutcomeEvent(log_events.TASK_DONE),
    outcomes.RetryOutcome: _OutcomeEvent(log_events.TASK_RETRIED, "warning"),
    outcomes.DeadOutcome: _OutcomeEvent(log_events.TASK_DEAD, "error"),
    outcomes.Release: _OutcomeEvent(log_events.TASK_RELEASED),
    outcomes.CancelledOutcome: _OutcomeEvent(log_events.TASK_CANCELLED),
    outcomes.Expired: _OutcomeEvent(log_events.TASK_EXPIRED),
}


@dataclass(frozen=True, slots=True)
class _OfQueue:
    """The metrics that each start of a task updates, for one queue and kind. The metrics are cached here, because
    looking one up costs as much as observing a value."""

    lag: recorder.Histogram  # seconds from the due time to the start
    wait: recorder.Histogram  # seconds from the time when the task was ready to its start
    worst: recorder.Peak | None  # the worst recent lag in seconds; None for throttled tasks
    objective_seconds: float  # lag objective of the queue; a lag above it counts as a miss


@dataclass(frozen=True, slots=True)
class _OfTask:
    """The metrics that each successful attempt updates, for one queue and task."""

    done: recorder.Counter
    runtime: recorder.Histogram


class Report:
    """Writes the log lines of a worker, and writes its metrics into its slot. If `holds_lines` is true, the log lines
    of successes may be collected and written together."""

    def __init__(self, settings: WorkerSettings, own: recorder.Recorder) -> None:
        # Successes are logged at level `info`. At a higher level, do not even build their lines.
        self._log_tasks = settings.log.tasks if settings.log.level in _LEVELS_WITH_SUCCESSES else "failures"
        self._logs_successes = self._log_tasks != "failures"
        self._objective_seconds = settings.lag_objective_seconds
        self._objectives = settings.lag_objectives
        self._recorder = own
        self.label_of_queue = own.label_of_queue
        self._sampled_at = 0.0
        self._queues: dict[tuple[str, Kind], _OfQueue] = {}
        self._tasks: dict[tuple[str, str], _OfTask] = {}
        self._form = lru_cache(_FORMS)(_new_form)
        self._busy_seconds = own.counter(metrics.WORKER_BUSY_SECONDS, settings.pool)
        self._busy = own.gauge(metrics.WORKERS_BUSY, settings.pool)
        self._turn_seconds = own.histogram(metrics.REDIS_COMMAND, "turn")
        self._claims_empty = own.counter(metrics.CLAIMS_EMPTY)
        self._claims_refused = own.counter(metrics.CLAIMS_REFUSED)
        self.log_lines = log.LineCounters(own)
        self.holds_lines = False
        self.running(0)
        own.gauge(metrics.WORKER_CONCURRENCY, settings.pool).set(settings.concurrency)

    # Between tasks

    def running(self, tasks: int) -> None:
        """Show the number of tasks that are running or about to run."""
        self._busy.set(tasks)

    def turn_took(self, seconds: float) -> None:
        """Observe the duration of a turn that did not include a wait at the doorbells."""
        self._turn_seconds.observe(seconds)

    def turn(self, reply: TurnReply, limit: int, *, counts_claims: bool = True) -> None:
        """Count the tasks that a turn claimed. If a later reply will return the same claims again, `counts_claims` is
        False, because they are counted then."""
        if reply.claims:
            queues = [claim.entry.queue for claim in reply.claims] if counts_claims else []
            for queue in set(queues):
                self._recorder.counter(metrics.CLAIMS, queue).add(queues.count(queue))
        elif reply.status is TurnStatus.LOST:
            self._claims_refused.add()
        elif limit and reply.status is TurnStatus.OK:
            self._claims_empty.add()
        for entry in reply.dropped:
            self._unstarted(entry, outcomes.CancelledOutcome)

    def released(self, entry: Entry) -> None:
        """Report a task that was given back before its start because this worker is leaving."""
        self._unstarted(entry, outcomes.Release)

    def given_back(self, entry: Entry) -> None:
        """Count a task that was given back because its claim was too old. This is not logged, because the task is
        claimed again at once."""
        self._recorder.counter(metrics.TASKS_PROCESSED, entry.queue, NO_TASK, outcomes.Release.label).add()

    def throttled(self, queue: str, task: str) -> None:
        """Count a task that may not start yet because of its rate limit. This is not logged, because a backlog of such
        tasks would produce one line per task."""
        self._recorder.counter(metrics.TASKS_THROTTLED, queue, task).add()

    def blocked(self, queue: str, task: str, task_id: str, seconds: float) -> None:
        """Report a step of a coroutine that held up all other tasks of this worker for `seconds`."""
        self._recorder.counter(metrics.WORKER_LOOP_BLOCKED, queue, task).add(seconds)
        took = round(seconds, _DIGITS)
        log.logger().warning(log_events.WORKER_BLOCKED, task_id=task_id, task=task, queue=queue, seconds=took)

    def _unstarted(self, entry: Entry, outcome: type[outcomes.Outcome]) -> None:
        label = outcome.label
        self._recorder.counter(metrics.TASKS_PROCESSED, entry.queue, NO_TASK, label).add()
        log.logger().info(
            _EVENTS[outcome].name, task_id=entry.id, queue=entry.queue, kind=entry.kind.label, outcome=label
        )

    def stale(self, text: bytes, *, sent_before: bool) -> None:
        """Log an outcome for which Redis found no entry to settle. Either the task was settled before, or this worker
        no longer holds the task. `sent_before` is true if an earlier turn, which got no reply, has sent the same
        outcome."""
        task_id = text.split(b" ", 1)[0].decode(errors="replace")
        write = log.logger().info if sent_before else log.logger().warning
        write(log_events.TASK_STALE, task_id=task_id, sent_before=sent_before)

    # A task

    def started(self, entry: Entry, times: Times) -> None:
        """Count the start of a task, and observe its lag and the parts of the lag."""
        queue = self.label_of_queue(entry.queue)
        known = self._queues.get((queue, entry.kind)) or self._new_queue(queue, entry.kind)
        lag = times.lag_seconds
        worst = known.worst
        known.lag.observe(lag)
        known.wait.observe(times.wait_seconds)
        if worst is not None and (lag > worst.highest or times.start_ns >= worst.until_ns):
            worst.observe(lag, times.start_ns)
        if times.promotion_lag_seconds is not None:
            self._recorder.histogram(metrics.PROMOTION_LAG, queue).observe(times.promotion_lag_seconds)
        if lag > known.objective_seconds:
            self._recorder.counter(metrics.TASK_LAG_OBJECTIVE_MISSES, queue, entry.kind.label).add()
        if times.early:
            self._recorder.counter(metrics.TASK_EARLY_STARTS, queue).add()

    def _new_queue(self, queue: str, kind: Kind) -> _OfQueue:
        lag = self._recorder.histogram(metrics.TASK_LAG, queue, kind.label)
        wait = self._recorder.histogram(metrics.QUEUE_WAIT, queue, kind.label)
        # The lag of a throttled task is intended, so it does not count as the worst lag.
        worst = None if kind is Kind.THROTTLED else self._recorder.peak(metrics.TASK_LAG_WORST, queue)
        made = _OfQueue(lag, wait, worst, self._objective_of(queue))
        return self._queues.setdefault((queue, kind), made)

    def _objective_of(self, queue: str) -> float:
        return self._objectives.get(queue, self._objective_seconds)

    def attempt(self, attempt: Attempt) -> None:
        """Count an attempt that has ended. Log it if the log settings include its outcome."""
        queue = self.label_of_queue(attempt.entry.queue)
        name = attempt.name
        runtime_seconds = attempt.runtime_seconds
        known = self._tasks.get((queue, name)) or self._new_task(queue, name)
        if runtime_seconds:
            known.runtime.observe(runtime_seconds)
            self._busy_seconds.add(runtime_seconds)
        if attempt.outcome is outcomes.DONE:
            known.done.add()
            if not self._logs_successes:
                return
        else:
            self._count_other(attempt)
        if self._is_logged(attempt):
            self._log_attempt(attempt)

    def _new_task(self, queue: str, task: str) -> _OfTask:
        done = self._recorder.counter(metrics.TASKS_PROCESSED, queue, task, outcomes.Done.label)
        made = _OfTask(done, self._recorder.histogram(metrics.TASK_RUNTIME, queue, task))
        return self._tasks.setdefault((queue, task), made)

    def _count_other(self, attempt: Attempt) -> None:
        counter = self._recorder.counter
        queue = attempt.entry.queue
        task = attempt.name
        counter(metrics.TASKS_PROCESSED, queue, task, attempt.outcome.label).add()
        if isinstance(attempt.outcome, outcomes.RetryOutcome):
            counter(metrics.TASK_RETRIES, queue, task).add()
        elif isinstance(attempt.outcome, outcomes.DeadOutcome):
            counter(metrics.TASKS_DEAD, queue, task, attempt.reason).add()

    def _is_logged(self, attempt: Attempt) -> bool:
        which = self._log_tasks
        outcome = attempt.outcome
        if which == "all" or not isinstance(outcome, outcomes.Done) or outcome.refused:
            return True
        if which == "late":
            return attempt.times.lag_seconds > self._objective_of(self.label_of_queue(attempt.entry.queue))
        if which == "failures" or time.monotonic() - self._sampled_at < _SAMPLE_SECONDS:
            return False
        self._sampled_at = time.monotonic()
        return True

    def _log_attempt(self, attempt: Attempt) -> None:
        entry = attempt.entry
        outcome = attempt.outcome
        times = attempt.times
        event = _EVENTS[type(outcome)]
        form = self._form(event, outcome.label, attempt.name, entry.queue, entry.kind)
        values = (
            entry.id,
            entry.attempt,
            times.lag_seconds,
            times.promotion_lag_seconds or 0.0,
            times.wait_seconds,
            attempt.runtime_seconds,
        )
        if outcome is outcomes.DONE and entry.flag == "-" and not attempt.trace_id:
            (log.logger().hold if self.holds_lines else log.logger().write)(form(*values))
        else:
            more = _more_of(attempt)
            level = "warning" if "result_refused" in more else event.level
            getattr(log.logger(), level)(event.name, **form.filled(*values), **more)


def _new_form(event: _OutcomeEvent, label: str, task: str, queue: str, kind: Kind) -> Form:
    """Return a template for the log lines of attempts with this task, queue, kind and outcome."""
    fields: Fields = {
        "task_id": str,
        "task": task,
        "queue": queue,
        "kind": kind.label,
        "attempt": int,
        "outcome": label,
        "lag_seconds": float,
        "promotion_lag_seconds": float,
        "wait_seconds": float,
        "runtime_seconds": float,
    }
    return log.logger().form(event.level, event.name, fields)


def _more_of(attempt: Attempt) -> Fields:
    """Return the log fields that only some attempts have, such as the error, or the delay before the retry."""
    entry = attempt.entry
    outcome = attempt.outcome
    more = Fields()
    if entry.flag != "-" and (kind := entry.last_crash) is not None:
        more |= {"crashes": entry.crashes, "losses": entry.losses, "last_crash": kind.label}
    if isinstance(outcome, outcomes.Done) and outcome.refused:
        more["result_refused"] = outcome.refused
    if attempt.reason:
        more["reason"] = attempt.reason
    if attempt.error:
        more["error"] = attempt.error
    if isinstance(outcome, outcomes.RetryOutcome):
        more["retry_in_seconds"] = outcome.delay_us / MICROSECONDS
    if attempt.trace_id:
        more["trace_id"] = attempt.trace_id
    if attempt.exception is not None and not isinstance(attempt.exception, Retry | Cancelled):
        more["exc_info"] = attempt.exception
    return more
