"""Runs attempts: what is the same however many run at once, and the executor of one at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.protocol.turns import ThrottleWord
from rota.worker.application import Runner, TaskBoundary
from rota.worker.attempt import Attempt, AttemptMaker
from rota.worker.claims import Claimed
from rota.worker.preparation import Runnable
from rota.worker.redis_times import times_of
from rota.worker.start_permission import MayStart

Attempted = Attempt | Literal[ThrottleWord.THROTTLED] | None
"""An attempt that was made. None for one that may not start: nothing of it was run, and it is still held. THROTTLED
when its rate did not let it start: this worker has it no more."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs one attempt at a time, all in the same record. `ask` asks Redis whether a task may start: see
    `rota.worker.start_permission`."""

    maker: AttemptMaker
    record: TaskRecord
    runner: Runner
    ask: Callable[[Attempt], MayStart]

    def attempt(self, claimed: Claimed, at_ns: int) -> Attempted:
        """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake.

        `at_ns` is the time. None also when it came too late to be started without asking.
        """
        maker = self.maker
        attempt = maker.open(self.record, claimed, at_ns)
        start_ns = boottime_ns()  # after the slot was written: see `rota.worker.claims`
        if start_ns > claimed.start_by_ns:
            self.record.end()
            return None
        if attempt.asks_first:
            answer = self.ask(attempt)
            if not answer.admits(attempt):
                self.record.end()
                return answer.refusal
            start_ns = at_ns = boottime_ns()
        ready = maker.begin(attempt, claimed.anchor, at_ns, start_ns)
        if ready is None:
            return attempt
        with TaskBoundary(attempt.current, maker.alone) as boundary:
            if maker.hooks.around:
                with maker.hooks.wrapped(attempt.current()), maker.alone:  # what hooks do after it is done once
                    attempt.called(times_of(attempt.entry, claimed.anchor, boottime_ns()))  # hooks before it are lag
                    self._call(ready, attempt)
            else:
                self._call(ready, attempt)
        if boundary.exception is not None:
            maker.failed(attempt, ready, boundary.exception)
        return attempt

    def _call(self, ready: Runnable, attempt: Attempt) -> None:
        """The start, and nothing between it and the function."""
        self.maker.started(attempt.entry, attempt.times)
        started = monotonic()
        try:
            answer = self.runner.call(ready.task, ready.args, ready.kwargs, attempt.soft_deadline_ns)
        finally:
            attempt.runtime_seconds = monotonic() - started
        if ready.terms.options.result_ttl:
            self.maker.keep_result(attempt, ready, answer)
