"""The exceptions and warnings of Rota that a caller or a task meets. Those that carry a handle or the status of a task
are in `rota.client.answers`.

Errors derive from RotaError and from the built-in class a caller would expect. `Retry` and `Dead` are raised
by tasks to choose their own end; `TimeLimit` and `Cancelled` are raised inside tasks and are BaseExceptions,
so that an `except Exception` in a task does not swallow them.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rota.durations import not_negative_seconds


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


class UnknownSchedule(RotaError, LookupError):
    """There is no schedule of that name."""


class ScheduleDeclared(RotaError, ValueError):
    """The code or the configuration of a node has a schedule of that name, which no client can change or remove."""


class GroupEnded(RotaError, RuntimeError):
    """A group takes no more members: it has ended, was cancelled, or nothing is known of it (any more)."""


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


class EventsOff(RotaError, RuntimeError):
    """There are no task events: no fleet of this namespace has `enabled = true` under `[events]` of its `rota.toml`."""


class EventsLost(RotaError, LookupError):
    """Task events that were to come next may be gone: what stood behind the place of the reader is no longer kept, or
    the server has lost its last writes. Whoever goes on with the same reader gets what is there."""


class WaitTimeout(RotaError, TimeoutError):
    """What was waited for had not come in time; the message says so when the server was away. The task goes on."""


class LeaseLost(RotaError, RuntimeError):
    """A task of a consumer is not held any more, so what was to be settled changed nothing.

    Its lease ran out (the process was stopped, or cut off from the server), or its consumer was closed. The task runs
    again, or has done so already.
    """


class RotaWarning(UserWarning):
    """The base of all warnings that Rota gives its callers."""


class UnservedQueue(RotaWarning):
    """Tasks were accepted on a queue that no running fleet serves; they wait until one does."""


class UnknownTask(RotaWarning):
    """Tasks were accepted under a name that no module of a running fleet declares: a worker that takes one sets it
    aside as dead."""


class UnseenNamespace(RotaWarning):
    """Tasks were accepted in a namespace in which no fleet was ever seen; they wait until one is started there."""


class BlockingCall(RotaWarning):
    """A call of `rota.Client` that waits for the server was made where an event loop runs, which it holds up."""


RETRY_DELAY: Final = "the delay of rota.Retry"


class Retry(Exception):
    """Raised by a task: end this attempt and try again after `delay`, seconds or timedelta.

    Without a delay the task's own back-off decides. It counts as a failure, so `retries` still bounds it. Raises
    TypeError or ValueError for a delay that is not a duration, or is negative.
    """

    delay: float | timedelta | None = None  # for subclasses that call no `__init__` of ours

    def __init__(self, delay: float | timedelta | None = None) -> None:
        if delay is not None:
            not_negative_seconds(delay, RETRY_DELAY)
        super().__init__(delay)
        self.delay = delay


class Dead(Exception):
    """Raised by a task: end it without another attempt and set it aside as dead, with the reason `why`."""

    why: str = ""  # as in Retry

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class TimeLimit(BaseException):
    """Raised inside a task when its soft time limit has passed; catch it to clean up, then raise it again.

    It comes at any line of the function, but in its main thread only, and in none of Rota's own calls: those it waits
    for. It comes once, and again only after `current_task().beat()`. A coroutine meets it as a cancellation
    (`asyncio.CancelledError`). An attempt that it ends has failed, and is retried as after any exception.
    """


class Cancelled(BaseException):
    """Raised inside a running task that somebody cancelled; catch it to clean up, then raise it again.

    It comes where TimeLimit comes, and once. A task that lets it or any other exception out ends as cancelled, without
    a further attempt; one that returns all the same is done. A task that raises it by itself ends as cancelled too.
    """
