"""What Redis is asked before a start: whether the task's rate lets it start, and that what may be started once at most
has begun. What is to be done is said step by step, so that a loop that blocks and one that must not do the same.

1. The script grants a start, or has taken the task out of this worker's hands. A start a few milliseconds ahead is
   granted too, and waited for.
2. The script marks an entry that may be started once at most, if this worker still holds it. Killed from here on, the
   task is dead.
3. Without an answer nothing is started. The worker still holds the entry, and whatever it does with it next, Redis
   tells it how the entry stands now: to ask again finds the mark. A start that was granted and not heard of is lost, so
   there are never more than the rate allows.
4. An answer may have been long in coming, so the fence is looked at once more.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from rota.child.child_life import Fence, Life, Waiter
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.command import Command
from rota.protocol.entry import MICROSECONDS, Entry, parse_entry
from rota.protocol.outcome import Expired
from rota.protocol.store import Store
from rota.protocol.turns import ThrottleWord
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.worker.attempt import Attempt
from rota.worker.preparation import Runnable

_MAY_END: Final = (ThrottleWord.START, ThrottleWord.LATE)  # here: by its run, or without


class MayStart(NamedTuple):
    """Whether a task is to be started: its entry as it stands now, None when it is not; and why."""

    entry: Entry | None
    word: ThrottleWord

    def admits(self, attempt: Attempt) -> bool:
        """Whether the attempt may begin; then it has the entry as it stands now. A late one expires as it begins."""
        if self.entry is None:
            return False
        attempt.entry = self.entry
        if self.word is ThrottleWord.LATE:
            attempt.outcome = Expired()
        return True

    @property
    def refusal(self) -> Literal[ThrottleWord.THROTTLED] | None:
        """THROTTLED when the task's rate did not let it start: this worker has it no more. Else None: still held."""
        return ThrottleWord.THROTTLED if self.word is ThrottleWord.THROTTLED else None


Steps = Generator[Command[Any] | float, Any, MayStart]
"""Gives commands to be run, and is sent what each answered, None for no answer; and seconds to be waited."""


@dataclass(frozen=True, slots=True)
class Starting:
    """Says what is to be asked. `throttled` is told the queue and the name of each task that may not start yet."""

    life: Life
    store: Store
    fence: Fence
    throttled: Callable[[str, str], None]

    def steps(self, attempt: Attempt) -> Steps:
        """The steps to the start of an attempt whose task asks for some."""
        ready, word = attempt.prepared, ThrottleWord.START
        assert isinstance(ready, Runnable)
        if ready.terms.options.rate is not None:
            word = yield from self._throttle(attempt.entry, ready)
        if word is ThrottleWord.START and ready.terms.options.is_started_once:
            return MayStart((yield from self._begin(attempt)), word)
        return MayStart(attempt.entry if word in _MAY_END else None, word)

    def _throttle(self, entry: Entry, ready: Runnable) -> Generator[Command[Any] | float, Any, ThrottleWord]:
        asked = ready.task.rate_asked(entry, ready.terms.options, ready.args, ready.kwargs)
        assert asked is not None
        word, us = (yield self.store.throttle(self.life.owner, asked)) or (ThrottleWord.GONE, 0)
        if word is ThrottleWord.THROTTLED:
            self.throttled(entry.queue, ready.name)
        elif word is ThrottleWord.START:
            yield us / MICROSECONDS
            return ThrottleWord.START if self._may_start(boottime_ns()) else ThrottleWord.GONE
        return word

    def _begin(self, attempt: Attempt) -> Generator[Command[Any] | float, Any, Entry | None]:
        begun = yield self.store.begin(self.life.owner, attempt.entry.text)
        now_ns = boottime_ns()
        if not begun or not self._may_start(now_ns):
            return None
        attempt.record.begin(begun, now_ns)
        return parse_entry(begun)

    def _may_start(self, at_ns: int) -> bool:
        return self.life.slot.is_intact and not self.fence.is_up(at_ns)


@dataclass(frozen=True, slots=True)
class Asker:
    """Takes the steps in a loop that blocks."""

    starting: Starting
    link: Link
    waiter: Waiter

    def ask(self, attempt: Attempt) -> MayStart:
        """Whether it may start. Raises Orphaned."""
        steps, answer = self.starting.steps(attempt), None
        try:
            while True:
                step = steps.send(answer)
                answer = self._take(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # it is what the generator returns

    def _take(self, step: Command[Any] | float) -> Any:
        if isinstance(step, float):
            self._wait(step)
            return None
        try:
            answer = self.link.connection().run(step)
        except ServerError as error:
            self.waiter.pause(self.link.failed(error))
            return None
        self.link.worked()
        return answer

    def _wait(self, seconds: float) -> None:
        until_ns = boottime_ns() + round(seconds * NANOSECONDS)
        while (left_ns := until_ns - boottime_ns()) > 0:  # a signal may wake it
            self.waiter.pause(left_ns / NANOSECONDS)
