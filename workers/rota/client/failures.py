"""The errors of calls to the server: calls in doubt, tasks without a result, and refusals that waiting does not end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rota.errors import RotaError, Unavailable
from rota.server.server_errors import ServerError

if TYPE_CHECKING:
    from rota.client.aio.handles import AsyncHandle
    from rota.client.blocking.handles import Handle
    from rota.client.status import TaskStatus

_DENIALS: Final = ("noperm", "noauth", "wrongpass")
_IN_SCRIPTS: Final = ("ACL failure in script", "The user executing the script can't")  # Valkey and Redis
_NOT_REPEATABLE: Final = "only an enqueue can be repeated exactly, and only in the process that made it"


class Denied(Unavailable):
    """The server does not let this user do it, nor will it until a person changes that: waiting does not help."""


def unavailable(message: str, error: Exception) -> Unavailable:
    """What callers are told in these words, when this is what went wrong."""
    return Denied(message) if is_denial(error) else Unavailable(message)


def is_denial(error: Exception) -> bool:
    """Whether it is for want of a permission or a password."""
    if isinstance(error, Denied) or (isinstance(error, ServerError) and error.reason in _DENIALS):
        return True
    return any(words in str(error) for words in _IN_SCRIPTS)


class Uncertain(RotaError, TimeoutError):
    """The call was sent and no answer came: it may have been carried out. Or it was, and what the client's durability
    asks for was not confirmed in time: the message says what is missing.

    `ids` are the tasks in doubt, and `id` the first of them. `accepted`: ids of an `enqueue_many` that the server
    has certainly taken; those in neither were not sent. `repeat` sends an enqueue again, exactly; a new enqueue
    with the same id adds nothing while the first copy lives, but a second copy when that has ended meanwhile.

    An await of `AsyncClient` that is cancelled goes on as CancelledError, and has this as its cause if the call was
    sent, or Unavailable if it was not: see `behind`.
    """

    def __init__(
        self,
        message: str,
        ids: Sequence[str] = (),
        accepted: Sequence[str] = (),
        again: "Callable[[], list[Handle[Any]]] | None" = None,
        aagain: "Callable[[], Awaitable[list[AsyncHandle[Any]]]] | None" = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.accepted = tuple(accepted)
        self._again = again
        self._aagain = aagain

    def __reduce__(self) -> tuple[type["Uncertain"], tuple[str, tuple[str, ...], tuple[str, ...]]]:
        # What `repeat` needs holds connections, which stay in their process.
        return type(self), (str(self), self.ids, self.accepted)

    def repeat(self) -> "list[Handle[Any]]":
        """Send the enqueue of `ids` again; whatever the server took the first time, it does not take again.

        Returns their handles. Raises Uncertain when there is no answer again, or more than 50 s after the call:
        the server knows it for 60 s. Raises ValueError when it was no enqueue, or was made in another process.
        """
        if self._again is None:
            raise ValueError(_NOT_REPEATABLE if self._aagain is None else "it was awaited: `await error.arepeat()`")
        return self._again()

    async def arepeat(self) -> "list[AsyncHandle[Any]]":
        """As `repeat`, of an enqueue of `AsyncClient`, and in the event loop that made it."""
        if self._aagain is None:
            raise ValueError(_NOT_REPEATABLE if self._again is None else "it was not awaited: error.repeat()")
        return await self._aagain()

    @classmethod
    def behind(cls, error: BaseException | None) -> "Uncertain | None":
        """The Uncertain that a CancelledError, or a TimeoutError of `asyncio.timeout`, comes from. None when nothing is
        in doubt: nothing was sent."""
        while error is not None and not isinstance(error, cls):
            error = error.__cause__
        return error

    @property
    def id(self) -> str:
        """The first id in doubt, "" when the call named none."""
        return self.ids[0] if self.ids else ""


class _NoResult(RotaError):
    # A task has ended in this way, and there is no result.

    def __init__(self, message: str, status: "TaskStatus | None" = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def id(self) -> str:
        """The task's id."""
        return self.status.id if self.status is not None else ""


class TaskDead(_NoResult, RuntimeError):
    """The task whose result was asked for is dead. `status` says all that is known of it."""

    @property
    def epitaph(self) -> dict[str, Any]:
        """What is known of its end."""
        return (self.status.epitaph if self.status is not None else None) or {}


class TaskCancelled(_NoResult, RuntimeError):
    """The task whose result was asked for was cancelled, or purged with its queue. `status` as of TaskDead."""


class TaskExpired(_NoResult, RuntimeError):
    """The task whose result was asked for was not started in time, before its `expires`. `status` as of TaskDead."""


class ResultNotStored(_NoResult, LookupError):
    """The task is done and its result is not there, or nothing is known of the task: the message says why. `status` as
    of TaskDead."""
