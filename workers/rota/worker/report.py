"""What a worker tells of its work: one line an attempt, and the numbers."""

import time
from typing import Final, assert_never

from rota.child.settings import WorkerSettings
from rota.errors import Retry as AskedRetry
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.outcome import Cancelled, Dead, Done, Expired, Outcome, Release, Retry
from rota.protocol.replies import TurnReply, TurnWord
from rota.telemetry import events, log, metrics
from rota.telemetry.log_lines import LogLines
from rota.telemetry.recorder import Recorder
from rota.worker.attempt import NO_TASK, Attempt
from rota.worker.times import Times

_SAMPLE_SECONDS: Final = 1.0  # with `log.tasks = "sample"`, at most one line of a success in this time
_DIGITS: Final = 6


class Report:
    """Writes into the recorder of the worker's slot, and to the log."""

    def __init__(self, settings: WorkerSettings, recorder: Recorder) -> None:
        self._pool = settings.pool
        self._log_tasks = settings.log.tasks
        self._objective_seconds = settings.lag_objective_seconds
        self._objectives = settings.lag_objectives
        self._recorder = recorder
        self._sampled_at = 0.0
        self._busy_seconds = recorder.counter(metrics.WORKER_BUSY_SECONDS, settings.pool)
        self._busy = recorder.gauge(metrics.WORKERS_BUSY, settings.pool)
        self._turn_seconds = recorder.histogram(metrics.REDIS_COMMAND, "turn")
        self._claims_empty = recorder.counter(metrics.CLAIMS_EMPTY)
        self._claims_refused = recorder.counter(metrics.CLAIMS_REFUSED)
        self.log_lines = LogLines(recorder)
        self.idle()

    # Between tasks

    def busy(self) -> None:
        """A task is about to run."""
        self._busy.set(1)

    def idle(self) -> None:
        """No task runs."""
        self._busy.set(0)

    def turn(self, reply: TurnReply, limit: int, seconds: float) -> None:
        """A turn was answered."""
        self._turn_seconds.observe(seconds)
        for claim in reply.claims:
            self._recorder.counter(metrics.CLAIMS, claim.entry.queue).add()
        if reply.word is TurnWord.LOST:
            self._claims_refused.add()
        elif limit and not reply.claims and reply.word is TurnWord.OK:
            self._claims_empty.add()
        for entry in reply.dropped:
            self.unstarted(entry, Cancelled())

    def started(self, entry: Entry, times: Times) -> None:
        """A task's function is about to be called: how late, and why."""
        recorder, queue, kind = self._recorder, entry.queue, entry.kind.label
        recorder.histogram(metrics.TASK_LAG, queue, kind).observe(times.lag_seconds)
        recorder.histogram(metrics.QUEUE_WAIT, queue, kind).observe(times.wait_seconds)
        if times.promotion_lag_seconds is not None:
            recorder.histogram(metrics.PROMOTION_LAG, queue).observe(times.promotion_lag_seconds)
        if times.lag_seconds > self._objectives.get(queue, self._objective_seconds):
            recorder.counter(metrics.TASK_LAG_OBJECTIVE_MISSES, queue, kind).add()
        if times.early:
            recorder.counter(metrics.TASK_EARLY_STARTS, queue).add()

    # Ends

    def unstarted(self, entry: Entry, outcome: Outcome) -> None:
        """A task ended, or was given back, without having been started by this worker."""
        word, event = _words(outcome)
        self._recorder.counter(metrics.TASKS_PROCESSED, entry.queue, NO_TASK, word).add()
        log.logger().info(event, task_id=entry.id, queue=entry.queue, kind=entry.kind.label, outcome=word)

    def stale(self, text: bytes, *, sent_before: bool) -> None:
        """An outcome found nothing to settle: it had counted before, or the entry is no longer ours."""
        task_id = text.split(b" ", 1)[0].decode(errors="replace")
        tell = log.logger().info if sent_before else log.logger().warning
        tell(events.TASK_STALE, task_id=task_id, sent_before=sent_before)

    def attempt(self, attempt: Attempt) -> None:
        """An attempt has ended."""
        word, event = _words(attempt.verdict.outcome)
        self._count(attempt, word)
        if self._is_logged(attempt.verdict.outcome):
            _log_attempt(attempt, event, word)

    def _count(self, attempt: Attempt, word: str) -> None:
        recorder, queue, task = self._recorder, attempt.entry.queue, attempt.current.name
        recorder.counter(metrics.TASKS_PROCESSED, queue, task, word).add()
        match attempt.verdict.outcome:
            case Retry():
                recorder.counter(metrics.TASK_RETRIES, queue, task).add()
            case Dead():
                recorder.counter(metrics.TASKS_DEAD, queue, task, attempt.verdict.reason).add()
            case _:
                pass
        if attempt.runtime_seconds:
            recorder.histogram(metrics.TASK_RUNTIME, queue, task).observe(attempt.runtime_seconds)
            self._busy_seconds.add(attempt.runtime_seconds)

    def _is_logged(self, outcome: Outcome) -> bool:
        if self._log_tasks == "all" or not isinstance(outcome, Done):
            return True
        if self._log_tasks == "failures" or time.monotonic() - self._sampled_at < _SAMPLE_SECONDS:
            return False
        self._sampled_at = time.monotonic()
        return True


def _words(outcome: Outcome) -> tuple[str, str]:
    """The outcome as a metric's label, and its event."""
    match outcome:
        case Done():
            return "done", events.TASK_DONE
        case Retry():
            return "retry", events.TASK_RETRIED
        case Dead():
            return "dead", events.TASK_DEAD
        case Release():
            return "released", events.TASK_RELEASED
        case Cancelled():
            return "cancelled", events.TASK_CANCELLED
        case Expired():
            return "expired", events.TASK_EXPIRED
        case _:
            assert_never(outcome)


def _log_attempt(attempt: Attempt, event: str, word: str) -> None:
    entry, times, verdict = attempt.entry, attempt.times, attempt.verdict
    fields: dict[str, object] = {
        "task_id": entry.id,
        "task": attempt.current.name,
        "queue": entry.queue,
        "kind": entry.kind.label,
        "attempt": entry.attempt,
        "outcome": word,
        "lag_seconds": round(times.lag_seconds, _DIGITS),
        "promotion_lag_seconds": round(times.promotion_lag_seconds or 0.0, _DIGITS),
        "wait_seconds": round(times.wait_seconds, _DIGITS),
        "runtime_seconds": round(attempt.runtime_seconds, _DIGITS),
    }
    if verdict.reason:
        fields["reason"] = verdict.reason
    if verdict.error:
        fields["error"] = verdict.error
    if isinstance(verdict.outcome, Retry):
        fields["retry_in_seconds"] = verdict.outcome.delay_us / MICROSECONDS
    if verdict.exception is not None and not isinstance(verdict.exception, AskedRetry):
        fields["exc_info"] = verdict.exception
    _at_level(verdict.outcome, event, fields)


def _at_level(outcome: Outcome, event: str, fields: dict[str, object]) -> None:
    logger = log.logger()
    match outcome:
        case Dead():
            logger.error(event, **fields)
        case Retry():
            logger.warning(event, **fields)
        case _:
            logger.info(event, **fields)
