"""Each call is run where it is enqueued."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from rota.durations import MICROSECONDS
from rota.protocol.new_tasks import NewTask
from rota.protocol.task_states import State
from rota.testing.books import Books, KeptTask
from rota.testing.inline import RETRY, Manner, Ran, raise_failure, run_attempt
from rota.testing.stand_in import StandIn, standing_in

_HOW_TO_RUN: Final = "eager() runs what a task enqueues after that task, so nothing in it can wait for that"
_running: ContextVar["tuple[_Line, deque[KeptTask]] | None"] = ContextVar("rota_testing_running", default=None)
"""Which block runs the task of this context, and what that block runs after it."""


@contextmanager
def eager(*, retries: bool = False, limits: bool = False, raises: bool = True) -> Iterator[list[Ran]]:
    """Run each call that is enqueued in the block, in this process, before the enqueue returns; gives the attempts that
    were made.

    It is run whenever it is due. What a task enqueues runs after it. `retries`: what failed is tried again, at once,
    as its options say; else the first failure is its last. `limits`: the soft time limit is raised, in what the main
    thread enqueues. `raises`: what a task raised at last comes out of the enqueue; else its handle says that it is
    dead. Handles answer inside the block, with results as workers keep them (`result_ttl`).
    """
    line = _Line(Manner(retries, limits), raises=raises)
    with standing_in(StandIn(line.books, line.accepted, _HOW_TO_RUN)):
        yield line.ran


class _Line:
    """Runs what is enqueued, one behind the other; what a task enqueues stands behind all before it."""

    def __init__(self, manner: Manner, *, raises: bool) -> None:
        self.books = Books(_now_us)
        self.ran: list[Ran] = []
        self._manner = manner
        self._raises = raises

    def accepted(self, _namespace: str, tasks: Sequence[tuple[NewTask, KeptTask]]) -> None:
        """Run them; in a task, leave them for after it."""
        line = deque(kept for _, kept in tasks)
        running = _running.get()
        if running is not None and running[0] is self:
            running[1].extend(line)
        else:
            self._run_all(line)

    def _run_all(self, line: deque[KeptTask]) -> None:
        token = _running.set((self, line))
        try:
            while line:
                kept = line.popleft()
                if kept.ended is None:  # else it was cancelled
                    self._run(kept)
        finally:
            _running.reset(token)

    def _run(self, kept: KeptTask) -> None:
        ran = self._attempt(kept)
        while ran.outcome == RETRY:
            self.books.promote(kept)
            ran = self._attempt(kept)
        if self._raises and ran.outcome == State.DEAD:
            raise_failure(ran, kept)

    def _attempt(self, kept: KeptTask) -> Ran:
        ran = run_attempt(self.books, kept, _now_us(), self._manner)
        self.ran.append(ran)
        return ran


def _now_us() -> int:
    return round(time.time() * MICROSECONDS)
