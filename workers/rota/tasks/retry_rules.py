"""The rules that decide whether and when another attempt follows a failed one. The rules do no I/O, and get random
numbers through a parameter.

The default is exponential back-off with full jitter (Brooker, "Exponential Backoff And Jitter", 2015).
`backoff="linear", base=2, jitter=False` is the classic rule of 2 seconds for each failure.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota.durations import MICROSECONDS, Duration, doubled, not_negative_seconds, seconds
from rota.errors import RETRY_DELAY, Dead, Retry
from rota.protocol.outcome import RetryOutcome, error_line
from rota.tasks.options import TaskOptions

_NO_TERMINAL: Final = (
    "BdbQuit: a breakpoint was reached, but workers have no terminal to debug in: call the function in a terminal, or "
    "enqueue the task there inside `with rota.testing.eager():`"
)


class DeadReason(StrEnum):
    """The reason why there is no further attempt. There are only a few reasons, so they can be the label values of a
    metric."""

    RETRIES = "retries"  # the last permitted attempt failed
    DEAD_ON = "dead_on"  # the exception is in the task's dead_on
    NOT_RETRIED = "not_retried"  # the exception is not in the task's retry_on
    REQUESTED = "asked"  # the task raised rota.Dead
    BACKOFF = "backoff"  # the task's backoff function failed or did not return a duration


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The decision that there is no further attempt. `why` explains it to people."""

    reason: DeadReason
    why: str


def decide(
    options: TaskOptions, failures: int, exception: BaseException, random: Callable[[], float]
) -> RetryOutcome | GiveUp:
    """Decide whether the task is attempted again after an attempt that ended with `exception`, and after which delay.

    `failures` counts this attempt, so it is `entry.failures + 1`. `random` returns a number in [0, 1).
    """
    end = _end(options, failures, exception)
    if end is not None:
        return end
    own_delay = exception.delay if isinstance(exception, Retry) else None
    try:
        if own_delay is None:
            delay = _backoff(options, failures, random)
        else:
            delay = not_negative_seconds(own_delay, RETRY_DELAY)
        return RetryOutcome(max(0, round(delay * MICROSECONDS)))
    except BaseException as error:  # noqa: BLE001 - the task boundary: the application's backoff may even sys.exit()
        what = (
            "the task's backoff returned no valid delay"
            if own_delay is None
            else "Retry was raised without a valid delay"
        )
        return GiveUp(DeadReason.BACKOFF, f"{what}: {error_line(error)} (after {error_line(exception)})")


def _end(options: TaskOptions, failures: int, exception: BaseException) -> GiveUp | None:
    if isinstance(exception, Dead):
        why: object = exception.why
        # The application may have passed any object as `why`.
        text = why if isinstance(why, str) else error_line(exception)
        return GiveUp(DeadReason.REQUESTED, text or "the task raised rota.Dead")
    if _is_of_debugger(exception):
        return GiveUp(DeadReason.NOT_RETRIED, _NO_TERMINAL)
    if isinstance(exception, options.dead_on):
        return GiveUp(DeadReason.DEAD_ON, error_line(exception))
    if not _is_retried(options, exception):
        return GiveUp(DeadReason.NOT_RETRIED, error_line(exception))
    if failures > options.retries:
        return GiveUp(DeadReason.RETRIES, f"attempt {failures} of {options.retries + 1}: {error_line(exception)}")
    return None


def _is_of_debugger(exception: BaseException) -> bool:
    bdb = sys.modules.get("bdb")  # the module is not imported here, because a breakpoint would have loaded it
    return bdb is not None and isinstance(exception, bdb.BdbQuit)


def _is_retried(options: TaskOptions, exception: BaseException) -> bool:
    if isinstance(exception, (Retry, *options.retry_on)):
        return True
    # If every Exception is retried, SystemExit and TimeLimit are retried too, although they do not derive from
    # Exception.
    return Exception in options.retry_on and not isinstance(exception, Exception)


def _backoff(options: TaskOptions, failures: int, random: Callable[[], float]) -> float:
    if callable(options.backoff):
        delay: Duration = options.backoff(failures)
        return min(seconds(delay, "the delay of backoff"), options.max_delay)
    if options.backoff == "linear":
        bounded = min(options.base * failures, options.max_delay)
    else:
        bounded = doubled(options.base, options.max_delay, failures - 1)
    return bounded * random() if options.jitter else bounded
