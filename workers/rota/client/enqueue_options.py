"""What stands between a call and the server: a commit (`on_commit`), a bar (`progress`), a stand-in of tests."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from rota.client.waits import GroupQuestion, WaitQuestion
    from rota.protocol.command import Command
    from rota.protocol.groups import Room
    from rota.protocol.new_tasks import Enqueued, NewTask
    from rota.protocol.views import TaskState

W = TypeVar("W")
H = TypeVar("H")

OnCommit = Callable[[Callable[[], None]], object]
"""Takes a callback, and calls it once the transaction is committed, or at once when there is none; never after a
rollback."""
OnCommitOption = OnCommit | EllipsisType | None
"""`None` sends at once; `...` leaves it to the client."""


def check_on_commit(value: OnCommit) -> OnCommit:
    """What registers a callback for the commit. Raises TypeError."""
    if not callable(value):
        raise TypeError(
            f"on_commit must be a callable that takes a callback, as django.db.transaction.on_commit is, got {value!r}"
        )
    if inspect.iscoroutinefunction(value):
        raise TypeError(
            f"on_commit must be a plain function, got the coroutine function {value!r}: nobody would await it"
        )
    return value


AWAITED_NOW: Final = (
    "nobody awaits what its commit calls back: what is enqueued by a rota.Client waits for the commit, and what is "
    "awaited with on_commit=None waits for none"
)
MAP_WAITS_NOT: Final = "map() begins at once: call it after the commit, or on a rota.Client without on_commit"


def check_nothing_waits(on_commit: OnCommit, why_not: str = AWAITED_NOW) -> None:
    """For what is sent now: raises RuntimeError where `on_commit` would have it wait, or TypeError."""
    called: list[bool] = []
    check_on_commit(on_commit)(lambda: called.append(True))
    if not called:
        raise RuntimeError(f"a transaction is open, and {why_not}")


class OnceSent(Generic[W, H]):
    """The callback: sends what waits, and does nothing when it is called again after that. `handles`: what the server
    answered, None before."""

    def __init__(self, waiting: W, send: Callable[[W], list[H]]) -> None:
        self._waiting = waiting
        self._send = send
        self.handles: list[H] | None = None

    def __call__(self) -> None:
        """Raises as `Client.enqueue`: into the framework that calls."""
        if self.handles is None:
            self.handles = self._send(self._waiting)


Tell = Callable[[int], object]
"""Takes how many were accepted so far."""
ProgressOption = Callable[[int, int | None], object] | bool | None
"""Takes how many were accepted so far, and of how many (None: not known); True draws a bar."""


@contextmanager
def telling(progress: ProgressOption, total: int | None) -> Iterator[Tell]:
    """Gives what is to be told how many were accepted. Raises TypeError, or ModuleNotFoundError without rich."""
    if progress is None or progress is False:
        yield lambda _done: None
    elif progress is True:
        with _bar(total) as tell:
            yield tell
    elif callable(progress):
        yield lambda done: progress(done, total)
    else:
        raise TypeError(f"progress must be True, or a callable that is given (done, total), got {progress!r}")


def tell_all(progress: ProgressOption, total: int) -> None:
    """Tell that all were accepted."""
    with telling(progress, total) as tell:
        tell(total)


@contextmanager
def _bar(total: int | None) -> Iterator[Tell]:
    try:
        from rich import progress as rich  # noqa: PLC0415 - an extra, for those who ask for a bar
        from rich.console import Console  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True draws a bar with rich, which is not installed: pip install 'rota[progress]', or give "
            "progress= a callable that is given (done, total)",
            name="rich",
        ) from error
    columns = rich.TextColumn("enqueued"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    with rich.Progress(*columns, console=Console(stderr=True)) as drawn:
        bar = drawn.add_task("", total=total)
        yield lambda done: drawn.update(bar, completed=done)


T = TypeVar("T")

NO_SERVER: Final = "redis://no-server.invalid"  # of a default client that nobody configured; never connected to


class Interceptor(Protocol):
    """A stand-in for the server, as that of `rota.testing`, in whichever thread a client is used.

    What it is given has passed every check of a call, and is what the server would be sent. What it raises reaches the
    caller.
    """

    def enqueue(self, namespace: str, tasks: "Sequence[NewTask]") -> "list[Enqueued]":
        """Take the tasks of one call, in the order in which they would be sent."""

    def run(self, namespace: str, command: "Command[T]") -> T:
        """Answer any other command. Raises for one that it knows no answer to."""

    def wait(self, namespace: str, question: "WaitQuestion") -> "TaskState":
        """Answer a wait, at once. Raises when what is waited for has not come."""

    def wait_for_group(self, namespace: str, question: "GroupQuestion") -> "Room":
        """Answer a wait for room in a group, or for its end, likewise."""


class Interception:
    """The interceptor of this process, None but in tests. Each client looks here before it sends anything."""

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None


interception: Final = Interception()
