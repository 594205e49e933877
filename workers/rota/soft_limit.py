"""What ends a running task from outside: TimeLimit, once it is over its soft limit, and Cancelled, once somebody
cancelled it. Both are raised in the call of that task, and nowhere else.

The master signals a worker, whose handler Python runs between any two steps of the main thread, and what a handler
raises comes out there. So it raises only

1. while a task is called (`SoftLimit.call`), whose deadline is read from the clock once more, and whose number is
   compared with the one that the master wrote on the roster: a signal that comes late ends no other task,
2. and not in a call to our own code that the task makes (`time_limit_deferred`): there it waits until that is over, so
   that no answer is left unread on a connection, and no enqueue is torn in two;
3. nor around a fork, where Python prints what is raised, and drops it.

Applications import this with the client, so it imports little.
"""

import os
import signal
import time
from _thread import get_ident, interrupt_main
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from rota.errors import Cancelled, TimeLimit

R = TypeVar("R")
Ending = TimeLimit | Cancelled


class SoftLimit:
    """The limits of the call that this process's main thread makes now, if it makes one.

    `_end` raises, or has a coroutine cancelled; None while nothing is called. `_deadline_ns` (CLOCK_BOOTTIME) is
    0 without a soft limit, and once that was told: it is told once a deadline. That the task was cancelled is told once
    a call (`_is_told`); `_is_missed`: a signal came while nothing was called. `_holds` has an item for each reason to
    wait. A list, as that is changed without a step of Python's in which the handler could run. In a `with` block of the
    limit itself what is to be raised waits for the block's end; threads of the task that make one keep nothing from it.
    """

    __slots__ = ("_deadline_ns", "_end", "_holds", "_is_cancelled", "_is_missed", "_is_told", "_thread")

    def __init__(self) -> None:
        self._deadline_ns = 0
        self._end: Callable[[Ending], None] | None = None
        self._holds: list[None] = []
        self._is_cancelled: Callable[[], bool] = _never
        self._is_told = False
        self._is_missed = False
        self._thread = 0

    def install(self, number: int, is_cancelled: Callable[[], bool]) -> None:
        """Listen to the signal, in the main thread; last of all who want to be called at forks. `is_cancelled` returns
        whether the task that runs was cancelled."""
        self._is_cancelled = is_cancelled
        self._thread = get_ident()
        signal.signal(number, self.signalled)
        os.register_at_fork(
            before=partial(self._holds.append, None), after_in_parent=self._holds.pop, after_in_child=self._forget
        )
        # As if the signal came once more, and the handler runs where the fork was asked for.
        again = partial(interrupt_main, number)  # type: ignore[arg-type]  # real-time signals are no `Signals`
        os.register_at_fork(after_in_parent=again)

    def call(self, deadline_ns: int, function: Callable[..., R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> R:
        """Call the function; Cancelled comes out of it when the task is cancelled meanwhile, TimeLimit when the
        deadline passes, unless that is 0."""
        try:
            self._begin(deadline_ns, _raise)
            return function(*args, **kwargs)
        finally:  # not a context manager: the handler could run in its `__exit__`, and raise before the limit is off
            self._end = None

    async def wait_for(self, awaited: Awaitable[R], cancel: Callable[[Ending], None]) -> R:
        """Await what the last call returned; `cancel` is called with what should come out of it, at any step."""
        try:
            self._begin(self._deadline_ns, cancel)
            return await awaited
        finally:
            self._end = None

    def extend(self, deadline_ns: int) -> None:
        """The call has more time."""
        self._deadline_ns = deadline_ns

    def is_due(self, ending: Ending) -> bool:
        """Whether what was told still holds: the call goes on, and has got no new deadline since."""
        return self._end is not None and (isinstance(ending, Cancelled) or self._deadline_ns == 0)

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

    def _begin(self, deadline_ns: int, end: Callable[[Ending], None]) -> None:
        self._holds.clear()
        self._deadline_ns = deadline_ns
        self._is_told = False
        self._end = end
        if deadline_ns or self._is_missed:
            self._is_missed = False
            self._look()

    def _look(self) -> None:
        end = self._end
        if end is None:
            self._is_missed = True
        elif not self._is_told and self._is_cancelled():
            self._is_told = True
            end(Cancelled("the task was cancelled"))
        elif 0 < self._deadline_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME):
            self._deadline_ns = 0
            end(TimeLimit("the soft time limit has passed"))

    def _forget(self) -> None:
        # A copy of the process is no task, and hears no signal.
        self._end = None
        self._thread = 0
        self._holds.clear()


def _never() -> bool:
    return False


def _raise(ending: Ending) -> NoReturn:
    raise ending


soft_limit: Final = SoftLimit()
time_limit_deferred: Final = soft_limit
