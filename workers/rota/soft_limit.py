"""The exceptions that end a running task from outside: TimeLimit at the task's soft time limit, and Cancelled if a
client has cancelled the task. Both are raised only inside the call of that task.

The master sends the worker a signal. Python runs the signal's handler between any two steps of the main thread, and an
exception from the handler appears at that point. So the handler raises an exception only if all of these conditions
hold:

1. The function of a task is running (`SoftLimit.call`). The handler also checks whether the deadline has passed, and
   compares the number of the task with the number that the master wrote into the slot, so that a late signal cannot end
   another task.
2. The task is not inside a call of Rota's own code (`time_limit_deferred`). Otherwise the exception waits until the
   call returns, so that no reply is left unread on a connection and no enqueue is interrupted halfway.
3. The process is not forking, because Python would print the exception and drop it.

Python also drops an exception that is raised in a finalizer, such as `__del__` or a callback of the garbage collector.
An exception of ours that was dropped is raised again a little later.

Applications import this module with the client, so it imports few other modules.
"""

import os
import signal
import sys
import threading
import time
from _thread import get_ident, interrupt_main
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from rota.errors import Cancelled, TimeLimit

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

R = TypeVar("R")
Ending = TimeLimit | Cancelled

_AGAIN_SECONDS: Final = 0.01  # the delay before a dropped exception is raised again; most finalizers have ended by then


class SoftLimit:
    """Interrupts the task that the main thread of this process calls: with TimeLimit at its soft time limit, and with
    Cancelled if a client has cancelled it.

    If an exception becomes due within a `with` block of this object, it is deferred until the end of the block. Use
    such blocks in the main thread, because a block in another thread has no effect.
    """

    __slots__ = (
        "_deadline_ns",
        "_dropped",
        "_end",
        "_holds",
        "_is_cancelled",
        "_is_missed",
        "_is_raised",
        "_raised",
        "_thread",
    )

    def __init__(self) -> None:
        # A time of CLOCK_BOOTTIME, or 0 if there is no soft limit. The value is set to 0 when TimeLimit is raised,
        # because each deadline raises TimeLimit only once.
        self._deadline_ns = 0
        # The function that raises the exception or cancels the coroutine of the task. None while no task is called.
        self._end: Callable[[Ending], None] | None = None
        # Has one item for each reason to defer exceptions. It is a list because appending and popping are single steps,
        # which the handler cannot interrupt.
        self._holds: list[None] = []
        self._is_cancelled: Callable[[], bool] = _never
        self._is_raised = False  # whether Cancelled was already raised in this call
        self._raised: Ending | None = None  # the last exception raised in this call
        self._dropped: Ending | None = None  # the last exception raised in this call that Python dropped
        self._is_missed = False  # whether a signal came while no task was being called
        self._thread = 0

    def install(self, number: int, is_cancelled: Callable[[], bool]) -> None:
        """Start handling the signal. Call this in the main thread, after all other calls of `os.register_at_fork`.

        `is_cancelled` returns whether the running task was cancelled.
        """
        self._is_cancelled = is_cancelled
        self._thread = get_ident()
        signal.signal(number, self.signalled)
        os.register_at_fork(
            before=partial(self._holds.append, None), after_in_parent=self._holds.pop, after_in_child=self._forget
        )
        # A signal that arrived during the fork had no effect. Send it again after the fork, so that the handler runs in
        # the code of the task that forked.
        again = partial(interrupt_main, number)  # type: ignore[arg-type]  # not a `Signals` member
        os.register_at_fork(after_in_parent=again)
        # Sent from another thread, this signal also ends a blocking call of the main thread.
        send = partial(signal.pthread_kill, self._thread, number)
        sys.unraisablehook = partial(self.dropped, send, sys.unraisablehook)

    def call(self, deadline_ns: int, function: Callable[..., R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> R:
        """Call the function. Cancelled is raised inside the function if the task is cancelled, and TimeLimit when the
        deadline passes.

        A deadline of 0 means no limit.
        """
        try:
            self._start(deadline_ns, _raise)
            return function(*args, **kwargs)
        # This is not a context manager, because the handler could run in its `__exit__`, and raise before the limit is
        # off.
        finally:
            self._end = self._raised = self._dropped = None

    async def wait_for(self, awaited: Awaitable[R], cancel: Callable[[Ending], None]) -> R:
        """Await the coroutine that the function returned at the last use of `call`.

        When TimeLimit or Cancelled is due, the signal handler calls `cancel` with this exception. `cancel` has to raise
        it in the coroutine.
        """
        try:
            self._start(self._deadline_ns, cancel)
            return await awaited
        finally:
            self._end = self._raised = self._dropped = None

    def extend(self, deadline_ns: int) -> None:
        """Set a new soft deadline for the current call."""
        self._deadline_ns = deadline_ns

    def is_due(self, ending: Ending) -> bool:
        """Whether this exception must still be raised in the task. This is false if the call has ended. For TimeLimit,
        it is also false if the task has been given a new deadline."""
        return self._end is not None and (isinstance(ending, Cancelled) or self._deadline_ns == 0)

    def signalled(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Handle the signal: raise the exception that is due, unless a `with` block of this object defers it."""
        if not self._holds:
            self._raise_if_due()

    def dropped(
        self,
        send_signal: Callable[[], None],
        report: Callable[["UnraisableHookArgs"], object],
        args: "UnraisableHookArgs",
        /,
    ) -> None:
        """Handle an exception that Python drops.

        This is installed as `sys.unraisablehook`. If this object raised the exception, `send_signal` is called a little
        later, so that the handler raises it again. Other exceptions are passed to `report`, which was the hook before.
        """
        ending = args.exc_value
        if ending is None or ending is not self._raised:
            report(args)
            return

        # This runs later, in another thread. If the signal were sent here, the handler could raise the exception in
        # this hook.
        def raise_again() -> None:
            if self._raised is ending:  # if not, the call has ended
                self._dropped = ending
                send_signal()

        self._holds.append(None)  # An exception that is raised in this hook would be lost.
        timer = threading.Timer(_AGAIN_SECONDS, raise_again)
        timer.daemon = True
        timer.start()
        self._holds.pop()

    def __enter__(self) -> None:
        if get_ident() == self._thread:
            self._holds.append(None)

    def __exit__(self, *_: object) -> None:
        if get_ident() == self._thread:
            self._holds.pop()
            self.signalled()

    def _start(self, deadline_ns: int, end: Callable[[Ending], None]) -> None:
        self._holds.clear()
        self._deadline_ns = deadline_ns
        self._is_raised = False
        self._end = end
        if deadline_ns or self._is_missed:
            self._is_missed = False
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        end = self._end
        if end is None:
            self._is_missed = True
        elif (ending := self._due_ending()) is not None:
            self._raised = ending
            end(ending)

    def _due_ending(self) -> Ending | None:
        dropped = self._dropped if self._dropped is self._raised else None
        if isinstance(dropped, Cancelled) or (not self._is_raised and self._is_cancelled()):
            self._is_raised = True
            return Cancelled("the task was cancelled")
        is_dropped = dropped is not None and self._deadline_ns == 0  # 0 unless the task has been given a new deadline
        if is_dropped or 0 < self._deadline_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME):
            self._deadline_ns = 0
            return TimeLimit("the soft time limit has passed")
        return None

    def _forget(self) -> None:
        # A forked child runs no task, and the master sends it no signals.
        self._end = None
        self._thread = 0
        self._holds.clear()


def _never() -> bool:
    return False


def _raise(ending: Ending) -> NoReturn:
    raise ending


soft_limit: Final = SoftLimit()
time_limit_deferred: Final = soft_limit
