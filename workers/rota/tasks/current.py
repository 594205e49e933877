"""The task that runs now, as the code inside it sees it."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rota.errors import NoCurrentTask
from rota.foreign_names import KnowsForeignNames


@dataclass(slots=True)
class CurrentTask(KnowsForeignNames, place="current task"):
    """One attempt of a task, while it runs.

    `kind`: immediate, delayed, retry, periodic, throttled or recovered. `attempt` counts from 1; `crashes` are the
    attempts that ended with their worker. `due_at` by Redis time; `lag_seconds`, how late this attempt started.
    `deadline`: when the time limit ends the attempt, None without one. `carried`: texts that came along with the task
    besides its arguments, as `traceparent`. `trace_id`: what the attempt's line of the log is to say as such.
    """

    id: str
    name: str
    queue: str
    kind: str
    attempt: int
    crashes: int
    due_at: datetime
    lag_seconds: float
    deadline: datetime | None = None
    extend: Callable[[], datetime | None] | None = field(default=None, repr=False, compare=False)
    report: Callable[[float, float | None, str], None] | None = field(default=None, repr=False, compare=False)
    ask_cancelled: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    carried: Mapping[str, str] = field(default_factory=dict, repr=False)
    trace_id: str = ""

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the task: for code that asks, where `rota.Cancelled` cannot be raised."""
        return self.ask_cancelled is not None and self.ask_cancelled()

    def beat(self) -> None:
        """Say that the task makes progress: its time limits begin anew, and `deadline` moves with them."""
        if self.extend is not None:
            self.deadline = self.extend()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the task is: shown by `status`, the command line and the status page a second later. As often as
        you like, from any thread: it is a few microseconds in this process's memory. The note may have 100 bytes.

        Raises ValueError for what is no number from 0 on.
        """
        if self.report is not None:
            self.report(done, total, note)


_running: ContextVar[Callable[[], CurrentTask]] = ContextVar("rota_current_task")


def current_task() -> CurrentTask:
    """The task this code runs in. Raises NoCurrentTask outside one, and in threads a task starts by itself."""
    try:
        return _running.get()()
    except LookupError:
        raise NoCurrentTask(
            "no task runs here: current_task() answers inside a task that a worker runs, and in a thread of "
            "such a task only under a copy of its context (contextvars.copy_context)"
        ) from None


# Round each attempt: from `set_running`, which takes what returns the task and gives back a token, to `reset_running`,
# which takes the token, that task is the current one. No context manager, whose two methods cost three times as much.
set_running: Final = _running.set
reset_running: Final = _running.reset
