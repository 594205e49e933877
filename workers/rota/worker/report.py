"""What a worker tells of its work: one line an attempt, and the numbers."""

import time
from collections import Counter
from typing import Final, assert_never

from rota.child.settings import WorkerSettings
from rota.errors import Retry
from rota.protocol.entry import MICROSECONDS, Entry, Kind
from rota.protocol.outcome import DONE, CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.replies import TurnReply, TurnWord
from rota.telemetry import events, log, metrics
from rota.telemetry.recorder import Recorder
from rota.worker.attempt import NO_TASK, Attempt
from rota.worker.times import Times

_SAMPLE_SECONDS: Final = 1.0  # with `log.tasks = "sample"`, at most one line of a success in this time
_DIGITS: Final = 6
_LEVELS_WITH_SUCCESSES: Final = ("debug", "info")


class _Lane:
    """The children of one queue and kind that every start needs: found once, as finding costs as much as observing."""

    __slots__ = ("lag", "objective_seconds", "wait")

    def __init__(self, recorder: Recorder, queue: str, kind: str, objective_seconds: float) -> None:
        self.lag = recorder.histogram(metrics.TASK_LAG, queue, kind)
        self.wait = recorder.histogram(metrics.QUEUE_WAIT, queue, kind)
        self.objective_seconds = objective_seconds


class _Line:
    """The children of one queue and task that every success needs."""

    __slots__ = ("done", "runtime")

    def __init__(self, recorder: Recorder, queue: str, task: str) -> None:
        self.done = recorder.counter(metrics.TASKS_PROCESSED, queue, task, "done")
        self.runtime = recorder.histogram(metrics.TASK_RUNTIME, queue, task)


class Report:
    """Writes into the recorder of the worker's slot, and to the log."""

    def __init__(self, settings: WorkerSettings, recorder: Recorder) -> None:
        # No line is put together that the level would not let through.
        self._log_tasks = settings.log.tasks if settings.log.level in _LEVELS_WITH_SUCCESSES else "failures"
        self._objective_seconds = settings.lag_objective_seconds
        self._objectives = settings.lag_objectives
        self._recorder = recorder
        self._sampled_at = 0.0
        self._lanes: dict[tuple[str, Kind], _Lane] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        self._busy_seconds = recorder.counter(metrics.WORKER_BUSY_SECONDS, settings.pool)
        self._busy = recorder.gauge(metrics.WORKERS_BUSY, settings.pool)
        self._turn_seconds = recorder.histogram(metrics.REDIS_COMMAND, "turn")
        self._claims_empty = recorder.counter(metrics.CLAIMS_EMPTY)
        self._claims_refused = recorder.counter(metrics.CLAIMS_REFUSED)
        self.log_lines = log.LineCounters(recorder)
        self.idle()

    # Between tasks

    def busy(self) -> None:
        """Tasks are about to run."""
        self._busy.set(1)

    def idle(self) -> None:
        """No task runs."""
        self._busy.set(0)

    def turn_took(self, seconds: float) -> None:
        """A turn was answered at once, after so long."""
        self._turn_seconds.observe(seconds)

    def turn(self, reply: TurnReply, limit: int) -> None:
        """A turn was answered."""
        if reply.claims:
            for queue, entries in Counter(claim.entry.queue for claim in reply.claims).items():
                self._recorder.counter(metrics.CLAIMS, queue).add(entries)
        elif reply.word is TurnWord.LOST:
            self._claims_refused.add()
        elif limit and reply.word is TurnWord.OK:
            self._claims_empty.add()
        for entry in reply.dropped:
            self.unstarted(entry, CancelledOutcome())

    def started(self, entry: Entry, times: Times) -> None:
        """A task's function is about to be called: how late, and why."""
        lane = self._lanes.get((entry.queue, entry.kind)) or self._new_lane(entry)
        lane.lag.observe(times.lag_seconds)
        lane.wait.observe(times.wait_seconds)
        if times.promotion_lag_seconds is not None:
            self._recorder.histogram(metrics.PROMOTION_LAG, entry.queue).observe(times.promotion_lag_seconds)
        if times.lag_seconds > lane.objective_seconds:
            self._recorder.counter(metrics.TASK_LAG_OBJECTIVE_MISSES, entry.queue, entry.kind.label).add()
        if times.early:
            self._recorder.counter(metrics.TASK_EARLY_STARTS, entry.queue).add()

    def _new_lane(self, entry: Entry) -> _Lane:
        objective_seconds = self._objectives.get(entry.queue, self._objective_seconds)
        lane = _Lane(self._recorder, entry.queue, entry.kind.label, objective_seconds)
        return self._lanes.setdefault((entry.queue, entry.kind), lane)

    # Ends

    def released(self, entry: Entry) -> None:
        """A task was given back unstarted, as this worker leaves."""
        self.unstarted(entry, Release())

    def unstarted(self, entry: Entry, outcome: Outcome) -> None:
        """A task ended, or was given back, without having been started by this worker."""
        word, event = _words(outcome)
        self._recorder.counter(metrics.TASKS_PROCESSED, entry.queue, NO_TASK, word).add()
        log.logger().info(event, task_id=entry.id, queue=entry.queue, kind=entry.kind.label, outcome=word)

    def given_back(self, entry: Entry) -> None:
        """A task was given back as its claim took too long. Not worth a line: it is claimed again at once."""
        self._recorder.counter(metrics.TASKS_PROCESSED, entry.queue, NO_TASK, _words(Release())[0]).add()

    def stale(self, text: bytes, *, sent_before: bool) -> None:
        """An outcome found nothing to settle: it had counted before, or the entry is no longer ours."""
        task_id = text.split(b" ", 1)[0].decode(errors="replace")
        tell = log.logger().info if sent_before else log.logger().warning
        tell(events.TASK_STALE, task_id=task_id, sent_before=sent_before)

    def attempt(self, attempt: Attempt) -> None:
        """An attempt has ended."""
        queue, name, runtime_seconds, outcome = (
            attempt.entry.queue,
            attempt.name,
            attempt.runtime_seconds,
            attempt.verdict.outcome,
        )
        line = self._lines.get((queue, name)) or self._new_line(queue, name)
        if runtime_seconds:
            line.runtime.observe(runtime_seconds)
            self._busy_seconds.add(runtime_seconds)
        if outcome is DONE:
            line.done.add()
        else:
            self._count_other(attempt)
        if self._is_logged(outcome):
            _log_attempt(attempt)

    def _new_line(self, queue: str, task: str) -> _Line:
        return self._lines.setdefault((queue, task), _Line(self._recorder, queue, task))

    def _count_other(self, attempt: Attempt) -> None:
        recorder, queue, task = self._recorder, attempt.entry.queue, attempt.name
        word, _ = _words(attempt.verdict.outcome)
        recorder.counter(metrics.TASKS_PROCESSED, queue, task, word).add()
        match attempt.verdict.outcome:
            case RetryOutcome():
                recorder.counter(metrics.TASK_RETRIES, queue, task).add()
            case DeadOutcome():
                recorder.counter(metrics.TASKS_DEAD, queue, task, attempt.verdict.reason).add()
            case _:
                pass

    def _is_logged(self, outcome: Outcome) -> bool:
        if not isinstance(outcome, Done):
            return True
        if self._log_tasks == "all":
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
        case RetryOutcome():
            return "retry", events.TASK_RETRIED
        case DeadOutcome():
            return "dead", events.TASK_DEAD
        case Release():
            return "released", events.TASK_RELEASED
        case CancelledOutcome():
            return "cancelled", events.TASK_CANCELLED
        case Expired():
            return "expired", events.TASK_EXPIRED
        case _:
            assert_never(outcome)


def _log_attempt(attempt: Attempt) -> None:
    word, event = _words(attempt.verdict.outcome)
    entry, times, verdict = attempt.entry, attempt.times, attempt.verdict
    fields: dict[str, object] = {
        "task_id": entry.id,
        "task": attempt.name,
        "queue": entry.queue,
        "kind": entry.kind.label,
        "attempt": entry.attempt,
        "outcome": word,
        "lag_seconds": round(times.lag_seconds, _DIGITS),
        "promotion_lag_seconds": round(times.promotion_lag_seconds or 0.0, _DIGITS),
        "wait_seconds": round(times.wait_seconds, _DIGITS),
        "runtime_seconds": round(attempt.runtime_seconds, _DIGITS),
    }
    if entry.flag != "-" and (kind := entry.last_crash) is not None:
        fields |= {"crashes": entry.crashes, "losses": entry.losses, "last_crash": kind.label}
    if verdict.reason:
        fields["reason"] = verdict.reason
    if verdict.error:
        fields["error"] = verdict.error
    if isinstance(verdict.outcome, RetryOutcome):
        fields["retry_in_seconds"] = verdict.outcome.delay_us / MICROSECONDS
    if verdict.exception is not None and not isinstance(verdict.exception, Retry):
        fields["exc_info"] = verdict.exception
    _at_level(verdict.outcome, event, fields)


def _at_level(outcome: Outcome, event: str, fields: dict[str, object]) -> None:
    logger = log.logger()
    match outcome:
        case DeadOutcome():
            logger.error(event, **fields)
        case RetryOutcome():
            logger.warning(event, **fields)
        case _:
            logger.info(event, **fields)
