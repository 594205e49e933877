"""The soft time limit: TimeLimit raised in the call of a task that is over it, and nowhere else.

The master signals a worker, whose handler Python runs between any two steps of the main thread, and what a handler
raises comes out there. So it raises only

1. while a call is under a limit (`SoftLimit.call`), whose deadline is read from the clock once more,
2. and not in a call to our own code that the task makes (`time_limit_deferred`): there it waits until that is over, so
   that no answer is left unread on a connection, and no enqueue is torn in two;
3. nor around a fork, where Python prints what is raised, and drops it.

Nothing of it runs for a task without a soft limit. Applications import this with the client, so it imports little.
"""

import os
import signal
import time
from _thread import get_ident, interrupt_main
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from rota.errors import TimeLimit

R = TypeVar("R")


class SoftLimit:
    """The limit of the call that this process's main thread makes now, if there is one.

    `_end` raises, or has a coroutine cancelled; None while nothing is under a limit. `_deadline_ns` (CLOCK_BOOTTIME) is
    0 once that was done: it is done once a deadline. `_holds` has an item for each reason to wait. A list, as that
    is changed without a step of Python's in which the handler could run. In a `with` block of the limit itself
    TimeLimit waits for the block's end; threads of the task that make one keep nothing from it.
    """

    __slots__ = ("_deadline_ns", "_end", "_holds", "_thread")

    def __init__(self) -> None:
        self._deadline_ns = 0
        self._end: Callable[[], None] | None = None
        self._holds: list[None] = []
        self._thread = 0

    def install(self, number: int) -> None:
        """Listen to the signal, in the main thread; last of all who want to be called at forks."""
        signal.signal(number, self.signalled)
        os.register_at_fork(
            before=partial(self._holds.append, None), after_in_parent=self._holds.pop, after_in_child=self._forget
        )
        # As if the signal came once more, and the handler runs where the fork was asked for.
        again = partial(interrupt_main, number)  # type: ignore[arg-type]  # real-time signals are no `Signals`
        os.register_at_fork(after_in_parent=again)

    def call(self, deadline_ns: int, function: Callable[..., R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> R:
        """Call the function; TimeLimit comes out of it when the deadline passes meanwhile."""
        try:
            self._begin(deadline_ns, _raise_time_limit)
            return function(*args, **kwargs)
        finally:  # not a context manager: the handler could run in its `__exit__`, and raise before the limit is off
            self._end = None

    async def wait_for(self, awaited: Awaitable[R], cancel: Callable[[], None]) -> R:
        """Await what the last call returned; `cancel` is called when the deadline passes meanwhile, at any step."""
        try:
            self._begin(self._deadline_ns, cancel)
            return await awaited
        finally:
            self._end = None

    def extend(self, deadline_ns: int) -> None:
        """The call has more time."""
        self._deadline_ns = deadline_ns

    def is_over(self) -> bool:
        """Whether the deadline has passed and TimeLimit was raised, with no new deadline since."""
        return self._end is not None and self._deadline_ns == 0

    def signalled(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """The signal's handler."""
        if not self._holds:
            self._look()

    def __enter__(self) -> None:
        if get_ident() == self._thread:
            self._holds.append(None)

    def __exit__(self, *_: object) -> None:
        if get_ident() == self._thread:
            self._holds.pop()
            self.signalled()

    def _begin(self, deadline_ns: int, end: Callable[[], None]) -> None:
        self._holds.clear()
        self._thread = get_ident()
        self._deadline_ns = deadline_ns
        self._end = end
        self.signalled()  # the signal may have come before

    def _look(self) -> None:
        end = self._end
        if end is not None and 0 < self._deadline_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME):
            self._deadline_ns = 0
            end()

    def _forget(self) -> None:
        # A copy of the process is no task, and hears no signal.
        self._end = None
        self._thread = 0
        self._holds.clear()


def _raise_time_limit() -> None:
    raise TimeLimit("the soft time limit has passed")


soft_limit: Final = SoftLimit()
time_limit_deferred: Final = soft_limit
