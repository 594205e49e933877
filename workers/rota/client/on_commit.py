"""Enqueues that wait for a commit: checked at the call, sent when the framework calls back."""

import inspect
from collections.abc import Callable
from types import EllipsisType
from typing import Final, Generic, TypeVar

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
