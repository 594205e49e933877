"""Runs the attempts of a worker that runs many tasks at once."""

import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Literal

from rota.child.slots import boottime_ns
from rota.protocol.outcome import Expired
from rota.protocol.turns import ThrottleWord
from rota.soft_limit import soft_limit
from rota.tasks.current import reset_running, set_running
from rota.worker.attempt import Attempt
from rota.worker.claims import Claimed
from rota.worker.concurrent.in_hand import InHand
from rota.worker.making import AttemptMaker
from rota.worker.prepare import Runnable
from rota.worker.starting import MayStart
from rota.worker.times import Anchor, times_of


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
