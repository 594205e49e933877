"""The executor of workers that run one attempt at a time, and the parts that it shares with other executors."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from rota.child.child_process import Waiter
from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.scripts import ScriptCall
from rota.protocol.turns import ThrottleStatus
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.tasks.claimed_call import MayStart, Runnable, StartSteps, take_steps
from rota.worker.application import Runner, TaskBoundary
from rota.worker.attempt import Attempt, AttemptMaker
from rota.worker.claims import Claimed
from rota.worker.redis_times import times_of

Attempted = Attempt | Literal[ThrottleStatus.THROTTLED] | None
"""The attempt that was made, or the reason why there was none. None means that the task may not start: no part of it
ran, and the worker still holds it. THROTTLED means that its rate did not permit the start: the worker no longer holds
it."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs one attempt at a time, and shows all attempts in the same slot record. `check_start` asks Redis whether a
    task may start; see `rota.tasks.claimed_call`."""

    maker: AttemptMaker
    record: TaskRecord
    runner: Runner
    check_start: Callable[[Attempt], MayStart]

    def attempt(self, claimed: Claimed, at_ns: int) -> Attempted:
        """Run a claimed task, unless it may not start. The slot shows the task until it ends. If the task raises an
        exception, the exception is not passed on but decides the outcome.

        `at_ns` is the current time. Returns None if the task may not start, for example because it was prefetched too
        long ago.
        """
        maker = self.maker
        attempt = maker.open(self.record, claimed, at_ns)
        start_ns = boottime_ns()  # read the time only after the slot was written, as `rota.worker.claims` requires
        if start_ns > claimed.start_by_ns:
            self.record.end()
            return None
        if attempt.needs_permission:
            permission = self.check_start(attempt)
            if not attempt.may_start(permission):
                self.record.end()
                return permission.refusal
            start_ns = at_ns = boottime_ns()
        ready = maker.start(attempt, claimed.anchor, at_ns, start_ns)
        if ready is None:
            return attempt
        with TaskBoundary(attempt.current, maker.no_copies) as boundary:
            if maker.hooks.around:
                # `no_copies` is inside the hooks, because a forked copy must not run the part of a hook that follows
                # the call. The start is measured after the first part of the hooks, so their time counts as lag.
                with maker.hooks.wrapped(attempt.current()), maker.no_copies:
                    attempt.called(times_of(attempt.entry, claimed.anchor, boottime_ns()))
                    self._call(ready, attempt)
            else:
                self._call(ready, attempt)
        if boundary.exception is not None:
            maker.failed(attempt, ready, boundary.exception)
        return attempt

    def _call(self, ready: Runnable, attempt: Attempt) -> None:
        """Count the start and call the function, with nothing in between."""
        self.maker.started(attempt.entry, attempt.times)
        started = monotonic()
        try:
            value = self.runner.call(ready.task, ready.args, ready.kwargs, attempt.soft_deadline_ns)
        finally:
            attempt.runtime_seconds = monotonic() - started
        if ready.settings.options.result_ttl:
            self.maker.keep_result(attempt, ready, value)


@dataclass(frozen=True, slots=True)
class StartChecker:
    """Asks Redis whether a task may start, and blocks until Redis replies."""

    starts: StartSteps
    link: Link
    waiter: Waiter

    def check_start(self, attempt: Attempt) -> MayStart:
        """Return the permission for this attempt to start, or the reason why it may not. Waits and repeats queries
        while Redis is unavailable. Raises Orphaned if the master has died."""
        return take_steps(attempt.steps_to_start(self.starts), self._take)

    def _take(self, step: ScriptCall[Any] | float) -> Any:
        if isinstance(step, float):
            self._wait(step)
            return None
        try:
            reply = self.link.connection().run(step)
        except ServerError as error:
            self.waiter.pause(self.link.failed(error))
            return None
        self.link.succeeded()
        return reply

    def _wait(self, seconds: float) -> None:
        until_ns = boottime_ns() + round(seconds * NANOSECONDS)
        while (left_ns := until_ns - boottime_ns()) > 0:  # repeated, because a signal may end a pause early
            self.waiter.pause(left_ns / NANOSECONDS)
