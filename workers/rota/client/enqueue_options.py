"""Options that affect how an enqueue is sent: after a commit (`on_commit`), with a progress bar (`progress`), or to a
stand-in in tests."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from rota.client.waits import GroupQuery, TaskQuery
    from rota.protocol.groups import Room
    from rota.protocol.new_tasks import Enqueued, NewTask
    from rota.protocol.scripts import ScriptCall
    from rota.protocol.views import TaskState

W = TypeVar("W")
H = TypeVar("H")

OnCommit = Callable[[Callable[[], None]], object]
"""A function that takes a callback, and calls it when the transaction is committed, or at once if there is no
transaction. After a rollback, the callback is never called."""
OnCommitOption = OnCommit | EllipsisType | None
"""`None` enqueues at once, without waiting for a commit. `...` stands for the option of the client."""


def check_on_commit(value: OnCommit) -> OnCommit:
    """Return `value` if it is a function that can register a callback. Raises TypeError if it is not."""
    if not callable(value):
        raise TypeError(
            f"on_commit must be a callable that takes a callback, as django.db.transaction.on_commit is, got {value!r}"
        )
    if inspect.iscoroutinefunction(value):
        raise TypeError(
            f"on_commit must be a plain function, got {value!r}, a coroutine function that would never be awaited"
        )
    return value


AWAITED_NOW: Final = (
    "an awaited enqueue cannot wait for the commit: use a rota.Client, which can, or pass on_commit=None to enqueue now"
)
MAP_WAITS_NOT: Final = "map() enqueues at once: call it after the commit, or on a rota.Client without on_commit"


def check_nothing_waits(on_commit: OnCommit, why_not: str = AWAITED_NOW) -> None:
    """Raise RuntimeError if `on_commit` would delay an enqueue because a transaction is open.

    Raises TypeError if `on_commit` is not valid. `why_not` is the part of the message that explains what to do.
    """
    called: list[bool] = []
    check_on_commit(on_commit)(lambda: called.append(True))
    if not called:
        raise RuntimeError(f"a transaction is open, and {why_not}")


class OnceSent(Generic[W, H]):
    """A callback for a commit, which sends the enqueue the first time it is called.

    `handles` is None until the enqueue has been sent, and contains its handles after that.
    """

    def __init__(self, waiting: W, send: Callable[[W], list[H]]) -> None:
        self._waiting = waiting
        self._send = send
        self.handles: list[H] | None = None

    def __call__(self) -> None:
        """Send the enqueue. The framework that calls this after the commit gets the errors of `Client.enqueue`."""
        if self.handles is None:
            self.handles = self._send(self._waiting)


ReportProgress = Callable[[int], object]
"""A function that takes the number of tasks accepted so far."""
ProgressOption = Callable[[int, int | None], object] | bool | None
"""A function that takes the number of tasks accepted so far, and the total number, which is None if it is not known.
True draws a progress bar."""


@contextmanager
def progress_reporter(progress: ProgressOption, total: int | None) -> Iterator[ReportProgress]:
    """Yield a function that reports the number of accepted tasks.

    Raises TypeError if `progress` is not valid, and ModuleNotFoundError if rich is needed but not installed.
    """
    if progress is None or progress is False:
        yield lambda _done: None
    elif progress is True:
        with _bar(total) as report:
            yield report
    elif callable(progress):
        yield lambda done: progress(done, total)
    else:
        raise TypeError(f"progress must be True, or a callable that takes (done, total), got {progress!r}")


def report_all(progress: ProgressOption, total: int) -> None:
    """Report that all tasks were accepted. Only the stand-ins of tests use this, because they accept all tasks in one
    step."""
    with progress_reporter(progress, total) as report:
        report(total)


@contextmanager
def _bar(total: int | None) -> Iterator[ReportProgress]:
    try:
        from rich import progress as rich  # noqa: PLC0415 - an extra, only needed for a bar
        from rich.console import Console  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True draws a bar with rich, which is not installed: pip install 'rota[progress]', or pass "
            "progress= a callable that takes (done, total)",
            name="rich",
        ) from error
    columns = rich.TextColumn("enqueued"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    with rich.Progress(*columns, console=Console(stderr=True)) as drawn:
        bar = drawn.add_task("", total=total)
        yield lambda done: drawn.update(bar, completed=done)


T = TypeVar("T")

NO_SERVER: Final = "redis://no-server.invalid"  # The URL of a default client in tests without configuration.


class Interceptor(Protocol):
    """A stand-in for the server, like the one in `rota.testing`. Any thread that uses a client may call it.

    The client makes all its checks before it calls these methods, so their arguments are exactly what a server would
    receive. Errors that the methods raise reach the caller of the client.
    """

    def enqueue(self, namespace: str, tasks: "Sequence[NewTask]") -> "list[Enqueued]":
        """Accept the tasks of one call, which are in the order in which they would be sent, and return a reply for
        each."""

    def run(self, namespace: str, command: "ScriptCall[T]") -> T:
        """Return the reply to any other command. Raises an error if the stand-in has no reply to it."""

    def wait(self, namespace: str, query: "TaskQuery") -> "TaskState":
        """Return the state of the task for which a caller waits, without waiting. Raises an error if the event that the
        caller waits for has not happened."""

    def wait_for_group(self, namespace: str, query: "GroupQuery") -> "Room":
        """Return the state of the group for which a caller waits, without waiting. Raises an error if the event that
        the caller waits for has not happened."""


class Interception:
    """The interceptor of this process, which is None except in tests.

    Before a client sends anything, it checks whether an interceptor is set.
    """

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None


interception: Final = Interception()
