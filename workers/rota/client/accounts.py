"""What is known of a task's attempts that did not end well, for its caller. Whoever shares the server may have written
there: what has not the right type counts as not said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rota.protocol.ends import AT_MOST_ONCE, CRASHED, LOST, TIME_LIMIT

_MOST: Final = 1e12  # seconds
_CUT_SHORT: Final = (CRASHED, LOST, TIME_LIMIT, AT_MOST_ONCE)


@dataclass(frozen=True, slots=True)
class AttemptAccount:
    """How one attempt came to nothing. Texts are "", numbers 0 and times None where they are not known.

    `attempt` counts from 1. `reason`: `failed` (and was tried again), `crashed` with its process, `lost` with its node,
    or why the task is dead. `error` says it in a line. `at`: when, by the node's clock; it had run for `run_seconds`
    then, in the process `pid` of `node`, and had begun `lag_seconds` late: None when its process did
    not live to say so.
    """

    attempt: int
    reason: str
    error: str
    at: datetime | None = None
    node: str = ""
    pid: int = 0
    run_seconds: float = 0.0
    lag_seconds: float | None = None


def attempts_of(accounts: Iterable[Mapping[str, Any]]) -> tuple[AttemptAccount, ...]:
    """Accounts as they were read, oldest first. One of a worker that died does not say which attempt it was: the one
    after that of the account before."""
    attempts: list[AttemptAccount] = []
    for told in accounts:
        before = attempts[-1].attempt if attempts else 0
        number = _whole(told.get("attempt")) or (before + 1 if told.get("reason") in _CUT_SHORT else 0)
        attempts.append(_attempt_of(number, told))
    return tuple(attempts)


def last_crash_in(accounts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The last account of a crash or a loss."""
    return next((told for told in reversed(list(accounts)) if told.get("reason") in _CUT_SHORT), None)


def _attempt_of(number: int, told: Mapping[str, Any]) -> AttemptAccount:
    return AttemptAccount(
        attempt=number,
        reason=_text(told.get("reason")),
        error=_text(told.get("error")),
        at=_time(told.get("at")),
        node=_text(told.get("owner")).rpartition(":")[0].rpartition(":")[0],  # of node:slot:life
        pid=_whole(told.get("pid")),
        run_seconds=_seconds(told.get("elapsed_seconds")) or 0.0,
        lag_seconds=_seconds(told.get("lag_seconds")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST else None


def _time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return at if at.tzinfo else None
