"""Running attempts, one at a time or many at once."""

import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Literal

from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.protocol.outcome import Expired
from rota.protocol.turns import ThrottleWord
from rota.soft_limit import soft_limit
from rota.tasks.hooks import reset_running, set_running
from rota.worker.application import Runner
from rota.worker.attempt import Attempt
from rota.worker.attempt_maker import AttemptMaker
from rota.worker.claims import Claimed
from rota.worker.concurrent.running_tasks import InHand
from rota.worker.preparation import Runnable
from rota.worker.redis_times import Anchor, times_of
from rota.worker.start_permission import MayStart


@dataclass(frozen=True, slots=True)
class Executor:
    """`ask` asks Redis whether a task may start: see `rota.worker.start_permission`."""

    maker: AttemptMaker
    record: TaskRecord
    runner: Runner
    ask: Callable[[Attempt], MayStart]

    def attempt(self, claimed: Claimed, at_ns: int) -> Attempt | Literal[ThrottleWord.THROTTLED] | None:
        """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake.

        `at_ns` is the time. None when it came too late to be started without asking: nothing of it was run. THROTTLED
        when its rate did not let it start: this worker has it no more.
        """
        maker, anchor, is_late = self.maker, claimed.anchor, False
        attempt = maker.open(self.record, claimed, at_ns)
        start_ns = boottime_ns()  # after the slot was written: see `rota.worker.claims`
        if start_ns > claimed.start_by_ns:
            self.record.end()
            return None
        if attempt.asks_first:
            begun, word = self.ask(attempt)
            if begun is None:
                self.record.end()
                return ThrottleWord.THROTTLED if word is ThrottleWord.THROTTLED else None
            attempt.entry, is_late, at_ns = begun, word is ThrottleWord.LATE, boottime_ns()
            start_ns = at_ns
        ready = maker.begin(attempt, anchor, at_ns, start_ns)
        if is_late:
            attempt.outcome = Expired()
        elif ready is not None:
            exception = self._run(anchor, ready, attempt)
            if exception is not None:
                maker.failed(attempt, ready, exception)
        return attempt

    def _run(self, anchor: Anchor, ready: Runnable, attempt: Attempt) -> BaseException | None:
        """Call the function within its hooks; returns what came out of that."""
        maker, token = self.maker, set_running(attempt.current)
        try:
            if maker.hooks.around:
                with maker.hooks.wrapped(attempt.current()), maker.alone:  # what hooks do after it is done once
                    attempt.called(times_of(attempt.entry, anchor, boottime_ns()))  # what hooks took before is lag
                    self._call(ready, attempt)
            else:
                self._call(ready, attempt)
        except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
            maker.alone.leave_if_copy(exception)
            return exception
        finally:
            reset_running(token)
        maker.alone.leave_if_copy(None)
        return None

    def _call(self, ready: Runnable, attempt: Attempt) -> None:
        """The start, and nothing between it and the function."""
        self.maker.started(attempt.entry, attempt.times)
        started = time.monotonic()
        try:
            answer = self.runner.call(ready.task, ready.args, ready.kwargs, attempt.soft_deadline_ns)
        finally:
            attempt.runtime_seconds = time.monotonic() - started
        if ready.terms.options.result_ttl:
            self.maker.keep_result(attempt, ready, answer)


@dataclass(frozen=True, slots=True)
class ConcurrentExecutor:
    """As `Executor` for one task at a time, but it awaits what that blocks for."""

    maker: AttemptMaker
    ask: Callable[[Attempt], Awaitable[MayStart]]

    async def attempt(self, hand: InHand, claimed: Claimed) -> Attempt | Literal[ThrottleWord.THROTTLED] | None:
        """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake.

        None when Redis did not say that it may start: nothing of it was run. THROTTLED when its rate did not let it
        start: this worker has it no more.
        """
        maker, word, at_ns = self.maker, ThrottleWord.START, boottime_ns()
        attempt = maker.open(hand.record, claimed, at_ns)
        hand.opened(attempt)
        if attempt.asks_first:
            begun, word = await self.ask(attempt)
            if begun is None:
                return ThrottleWord.THROTTLED if word is ThrottleWord.THROTTLED else None
            attempt.entry, at_ns = begun, boottime_ns()
        ready = maker.begin(attempt, claimed.anchor, at_ns, at_ns)
        if word is ThrottleWord.LATE:
            attempt.outcome = Expired()
        elif ready is not None:
            exception = await self._run(hand, claimed.anchor, ready, attempt)
            if exception is not None:
                maker.failed(attempt, ready, exception)
        return attempt

    async def _run(self, hand: InHand, anchor: Anchor, ready: Runnable, attempt: Attempt) -> BaseException | None:
        """Call the function within its hooks; returns what came out of that."""
        maker, token = self.maker, set_running(attempt.current)
        try:
            if maker.hooks.around:
                with maker.hooks.wrapped(attempt.current()), maker.alone:  # what hooks do after it is done once
                    attempt.called(times_of(attempt.entry, anchor, boottime_ns()))  # what hooks took before is lag
                    await self._call(hand, ready, attempt)
            else:
                await self._call(hand, ready, attempt)
        except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
            maker.alone.leave_if_copy(exception)
            return exception
        finally:
            reset_running(token)
        maker.alone.leave_if_copy(None)
        return None

    async def _call(self, hand: InHand, ready: Runnable, attempt: Attempt) -> None:
        """The start, and nothing between it and the function."""
        self.maker.started(attempt.entry, attempt.times)
        started = time.monotonic()
        try:
            answer = soft_limit.call(attempt.soft_deadline_ns, ready.task.function, ready.args, ready.kwargs)
            if isinstance(answer, Coroutine):
                answer = await hand.wait_for(answer)
        finally:
            attempt.runtime_seconds = time.monotonic() - started
        if ready.terms.options.result_ttl:
            self.maker.keep_result(attempt, ready, answer)
