"""The start of a task with a rate of its own: Redis is asked before the function is called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.child.life import NANOSECONDS, Fence, Life
from rota.child.slots import boottime_ns
from rota.child.wait import Waiter
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.replies import ThrottleWord
from rota.protocol.store import Store
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.worker.prepare import Runnable

_NANOSECONDS_A_MICROSECOND: Final = NANOSECONDS // MICROSECONDS


@dataclass(frozen=True, slots=True)
class Throttle:
    """Asks whether tasks may start. `throttled` is told the queue and the name of each that may not.

    1. The script grants the start, or has taken the task out of this worker's hands.
    2. A start a few milliseconds ahead is granted too: it is waited for here.
    3. Without an answer nothing is started: as of what may be started once at most, see `rota.worker.begin`. A start
       that was granted and not heard of is lost, so there are never more than the rate allows.
    """

    life: Life
    store: Store
    link: Link
    waiter: Waiter
    fence: Fence
    throttled: Callable[[str, str], None]

    def ask(self, entry: Entry, ready: Runnable) -> ThrottleWord:
        """What is to become of a task with a rate; GONE also when there was no answer in time. Raises Orphaned."""
        asked = ready.task.rate_asked(entry, ready.options, ready.args, ready.kwargs)
        assert asked is not None
        try:
            word, us = self.link.connection().run(self.store.throttle(self.life.owner, asked))
        except ServerError as error:
            self.waiter.pause(self.link.failed(error))
            return ThrottleWord.GONE
        self.link.worked()
        if word is ThrottleWord.THROTTLED:
            self.throttled(entry.queue, ready.name)
        elif word is ThrottleWord.START:
            self._wait(us * _NANOSECONDS_A_MICROSECOND)
            if not self.life.slot.is_intact or self.fence.is_up(boottime_ns()):
                return ThrottleWord.GONE
        return word

    def _wait(self, wait_ns: int) -> None:
        until_ns = boottime_ns() + wait_ns
        while (left_ns := until_ns - boottime_ns()) > 0:  # a signal may wake it
            self.waiter.pause(left_ns / NANOSECONDS)
