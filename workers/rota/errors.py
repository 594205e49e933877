"""Every exception and warning of Rota that a caller or a task meets.

Errors derive from RotaError and from the built-in class a caller would expect. `Retry` and `Dead` are raised
by tasks to choose their own end; `TimeLimit` and `Cancelled` are raised inside tasks and are BaseExceptions,
so that an `except Exception` in a task does not swallow them.
"""

from collections.abc import Sequence
from datetime import timedelta


class RotaError(Exception):
    """The base of all errors that Rota raises to its callers."""


class InvalidArguments(RotaError, TypeError):
    """The arguments are not strict JSON, or do not fit the task's signature. Nothing was sent."""


class InvalidName(RotaError, ValueError):
    """A queue, task, id or namespace has a name that cannot be used. Nothing was sent."""


class PayloadTooLarge(RotaError, ValueError):
    """The task's body is larger than `max_payload_kb`. Nothing was sent."""


class DuplicateTask(RotaError, ValueError):
    """Two functions were declared as tasks of one name."""


class NotConfigured(RotaError, RuntimeError):
    """Nothing says which server tasks go to."""


class NoCurrentTask(RotaError, RuntimeError):
    """`current_task()` was called outside a task."""


class Unavailable(RotaError, ConnectionError):
    """The server cannot be reached or refused; the call was not carried out.

    `accepted`: ids of an `enqueue_many` that the server had taken before.
    """

    def __init__(self, message: str, accepted: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.accepted = tuple(accepted)


class ServerFull(Unavailable):
    """The server has no memory left (maxmemory) and takes no new tasks; workers go on with what is there."""


class Uncertain(RotaError, TimeoutError):
    """The call was sent and no answer came, twice: it may have been carried out.

    `ids` are the tasks in doubt, and `id` the first of them; repeating the call with the same id is safe.
    `accepted`: ids of an `enqueue_many` that the server has certainly taken.
    """

    def __init__(self, message: str, ids: Sequence[str], accepted: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.accepted = tuple(accepted)

    @property
    def id(self) -> str:
        """The first id in doubt, "" when the call named none."""
        return self.ids[0] if self.ids else ""


class RotaWarning(UserWarning):
    """The base of all warnings that Rota gives its callers."""


class UnservedQueue(RotaWarning):
    """Tasks were accepted on a queue that no running fleet serves; they wait until one does."""


class Retry(Exception):
    """Raised by a task: end this attempt and try again after `delay`, seconds or timedelta.

    Without a delay the task's own back-off decides. It counts as a failure, so `retries` still bounds it.
    """

    def __init__(self, delay: float | timedelta | None = None) -> None:
        super().__init__(delay)
        self.delay = delay


class Dead(Exception):
    """Raised by a task: end it without another attempt and set it aside as dead, with the reason `why`."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class TimeLimit(BaseException):
    """Raised inside a task when its soft time limit has passed; catch it to clean up, then raise it again."""


class Cancelled(BaseException):
    """Raised inside a running task that somebody cancelled."""
