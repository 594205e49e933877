"""A task that a worker of many has in hand, from its claim to its end."""

import asyncio
from threading import get_ident, main_thread
from typing import Any

from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.errors import Cancelled, TimeLimit
from rota.protocol.entry import Entry
from rota.soft_limit import Ending, soft_limit
from rota.worker.attempt import Attempt


class InHand:
    """One task in its place. `attempt`: once it is in the slot. `ending`: what ends its coroutine from outside."""

    __slots__ = ("_is_awaited", "_told_ns", "attempt", "driver", "ending", "entry", "record")

    def __init__(self, entry: Entry, record: TaskRecord) -> None:
        self.entry = entry
        self.record = record
        self.attempt: Attempt | None = None
        self.ending: Ending | None = None
        self.driver: asyncio.Task[Any] | None = None
        self._is_awaited = False
        self._told_ns = 0

    @property
    def is_shown(self) -> bool:
        """Whether the slot shows this task in its place: not yet at its first step, and no more when it has ended."""
        return self.attempt is not None and self.record.number == self.attempt.number

    def opened(self, attempt: Attempt) -> None:
        """The slot shows it."""
        self.attempt = attempt
        attempt.extend_soft_limit = _extend_here
        self.record.enter_step()

    def enter_step(self) -> None:
        """A step of its own begins, or of a coroutine that it has started, which may have outlived it."""
        if self.is_shown:
            self.record.enter_step()

    def leave_step(self) -> None:
        """The step is over."""
        self.record.leave_step()

    async def wait_for(self, coroutine: Any) -> Any:
        """Await it. What ends it from outside cancels it through its loop, as `asyncio.timeout` does. Raises Cancelled
        or TimeLimit for that."""
        self._is_awaited = True
        try:
            self.look()  # nothing may have come of what was told before
            return await coroutine
        except asyncio.CancelledError as error:
            if self.ending is None:
                raise
            raise self.ending from error
        finally:
            self._is_awaited = False

    def look(self) -> None:
        """Cancel what is awaited when somebody cancelled the task, or its soft deadline has passed; of each once."""
        attempt = self.attempt
        if not self._is_awaited or attempt is None or isinstance(self.ending, Cancelled):
            return
        deadline_ns = attempt.soft_deadline_ns
        if attempt.is_cancelled():
            self._end(Cancelled("the task was cancelled"))
        elif deadline_ns != self._told_ns and deadline_ns <= boottime_ns():
            self._told_ns = deadline_ns
            self._end(TimeLimit("the soft time limit has passed"))

    def _end(self, ending: Ending) -> None:
        assert self.driver is not None
        self.ending = ending
        self.driver.cancel()


def _extend_here(deadline_ns: int) -> None:
    # A plain function that says so in the loop is what `soft_limit` watches. What a thread says is of a coroutine: for
    # that, `look` reads the deadline.
    if get_ident() == main_thread().ident:
        soft_limit.extend(deadline_ns)
