"""The exceptions and warnings that callers and tasks see. Errors that return handles or contain a task's status are in
`rota.client.command_replies` and `rota.client.inquiries`.

Errors derive from RotaError and from the built-in class that a caller would expect. A task raises `Retry` or `Dead` to
choose how its attempt ends. `TimeLimit` and `Cancelled` are raised inside tasks. They are BaseExceptions, so that an
`except Exception` in a task does not swallow them.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rota.durations import not_negative_seconds


class RotaError(Exception):
    """The base class of all errors that Rota raises to its callers."""


class InvalidArguments(RotaError, TypeError):
    """Raised if the arguments are not strict JSON or do not fit the task's signature. Nothing was sent."""


class InvalidName(RotaError, ValueError):
    """Raised if the name of a queue, task, id or namespace is not valid. Nothing was sent."""


class PayloadTooLarge(RotaError, ValueError):
    """Raised if the task's body is larger than `max_payload_kb`. Nothing was sent."""


class DuplicateTask(RotaError, ValueError):
    """Raised if two functions are declared as tasks with the same name."""


class UnknownSchedule(RotaError, LookupError):
    """Raised if there is no schedule with this name."""


class ScheduleDeclared(RotaError, ValueError):
    """Raised if the code or the configuration of a node declares a schedule with this name. Clients cannot change or
    remove it."""


class GroupEnded(RotaError, RuntimeError):
    """Raised if a group accepts no more members, because it has ended, was cancelled, or is unknown."""


class NotConfigured(RotaError, RuntimeError):
    """Raised if no source of settings names a server: see `rota.configure`."""


class NoCurrentTask(RotaError, RuntimeError):
    """Raised if `current_task()` is called outside a task."""


class Unavailable(RotaError, ConnectionError):
    """Raised if the server cannot be reached or refuses the call.

    The call was not carried out. After an `enqueue_many`, `accepted` lists the ids of the tasks that the server had
    accepted before the error.
    """

    def __init__(self, message: str, accepted: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.accepted = tuple(accepted)


class ServerFull(Unavailable):
    """Raised if the server has no memory left (maxmemory) and accepts no new tasks. Workers continue with the existing
    tasks."""


class EventsOff(RotaError, RuntimeError):
    """Raised if there are no task events, because no fleet of this namespace has `enabled = true` under `[events]` in
    its `rota.toml`."""


class EventsLost(RotaError, LookupError):
    """Raised if events after the last one that was read may have been lost, because they are no longer kept, or because
    the server lost its last writes. A reader that continues gets the events that are still stored."""


class WaitTimeout(RotaError, TimeoutError):
    """Raised if a wait took longer than its timeout. If the server was unreachable, the message states this. The task
    continues."""


class LeaseLost(RotaError, RuntimeError):
    """Raised if a consumer settles a task that it no longer holds. This changes nothing.

    Either the consumer's lease expired, because the process was suspended or cut off from the server, or the consumer
    was closed. The task will run again, or has already run again.
    """


class RotaWarning(UserWarning):
    """The base class of all warnings that Rota issues."""


class UnservedQueue(RotaWarning):
    """The warning that tasks were accepted on a queue that no running fleet serves. The tasks wait until a fleet serves
    it."""


class UnknownTask(RotaWarning):
    """The warning that tasks were accepted under a name that no module of a running fleet declares. A worker that
    claims such a task sets it aside as dead."""


class UnseenNamespace(RotaWarning):
    """The warning that tasks were accepted in a namespace in which no fleet has ever run. The tasks wait until a fleet
    is started there."""


class BlockingCall(RotaWarning):
    """The warning that a call of a blocking `rota.Client` blocks a running event loop."""


RETRY_DELAY: Final = "the delay of rota.Retry"


class Retry(Exception):
    """Raised by a task to end this attempt and try again after `delay` (seconds or a timedelta).

    Without a `delay`, the task's back-off determines the delay. The attempt counts as a failure, so `retries` still
    limits the attempts. Raises TypeError or ValueError if the delay is not a duration or is negative.
    """

    delay: float | timedelta | None = None  # the default in subclasses that do not call `Retry.__init__`

    def __init__(self, delay: float | timedelta | None = None) -> None:
        if delay is not None:
            not_negative_seconds(delay, RETRY_DELAY)
        super().__init__(delay)
        self.delay = delay


class Dead(Exception):
    """Raised by a task to end without another attempt. The task is set aside as dead, with the reason `why`."""

    why: str = ""  # the default in subclasses that do not call `Dead.__init__`

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class TimeLimit(BaseException):
    """Raised inside a task when its soft time limit has passed. Catch it to clean up, then raise it again.

    It can be raised at any line of the function, but only in the main thread. Inside Rota's own calls it is deferred
    until the call returns. It is raised only once, unless `current_task().heartbeat()` sets a new deadline. A coroutine
    gets `asyncio.CancelledError` instead. An attempt that ends with TimeLimit has failed, and is retried as after any
    other exception.
    """


class Cancelled(BaseException):
    """Raised inside a running task that was cancelled.

    Catch it to clean up, then raise it again. Like TimeLimit, it can be raised at any line of the function, but it is
    raised only once. If the task ends with this or any other exception, it ends as cancelled, without another attempt.
    If the function returns, the task is done. A task that raises Cancelled itself ends as cancelled too.
    """
