"""Task events: what the stream `{NS}:events` holds, one entry for each change of a task."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.command import Raw
from rota.protocol.wire import shown, text_of

_PLACE: Final = re.compile(r"\d{1,20}(-\d{1,20})?", re.ASCII)
_MILLISECOND_US: Final = 1000


class EventName(StrEnum):
    """What happened to a task. Which of its states each leads from and to, docs/protocol.md says."""

    ENQUEUED = "enqueued"
    SCHEDULED = "scheduled"
    READY = "ready"
    STARTED = "started"
    RETRIED = "retried"
    RELEASED = "released"
    THROTTLED = "throttled"
    RECOVERED = "recovered"
    REVIVED = "revived"
    RESTORED = "restored"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PURGED = "purged"


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One change of a task. Texts are "", and times None, where they do not apply.

    `id` is the event's own: what to go on from. `event` is one of the names in docs/protocol.md; later versions may
    have more. `attempt`: the one that was begun or has ended; of a task that waits, how many there were. `owner`: which
    worker has or had it, as `node:slot:life`. `at` is the server's time.
    """

    id: str
    event: str
    task_id: str
    queue: str
    task: str
    at: datetime
    attempt: int = 0
    owner: str = ""
    due_at: datetime | None = None
    lag_seconds: float | None = None
    runtime_seconds: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EventsPage:
    """What stands behind a place. `wanted`: whether events are being written. `oldest`, `latest`: ids of what is kept,
    "" when nothing is. `end`: where the next page begins, "" when nothing stands there; `events` lacks what others
    wrote."""

    wanted: bool
    oldest: str
    latest: str
    end: str
    events: tuple[TaskEvent, ...]


def is_place(text: str) -> bool:
    """Whether this is the id of an event, or "0"."""
    return _PLACE.fullmatch(text) is not None


def order_of(place: str) -> tuple[int, int]:
    """What ids are compared by."""
    milliseconds, _, number = place.partition("-")
    return int(milliseconds), int(number or 0)


def parse_events(raw: Raw) -> EventsPage:
    """`[wanted 0|1, oldest or "", latest or "", [[id, [field, value, ...]], ...]]`"""
    wanted, oldest, latest, found = raw
    end = text_of(found[-1][0]) if found else ""
    events = tuple(event for event in map(_parse_event, found) if event is not None)
    return EventsPage(bool(wanted), text_of(oldest), text_of(latest), end, events)


def _parse_event(raw: Raw) -> TaskEvent | None:
    place, pairs = text_of(raw[0]), list(map(text_of, raw[1]))
    try:
        return _event_of(place, dict(zip(pairs[::2], pairs[1::2], strict=True)))
    except (LookupError, ValueError, ArithmeticError, OSError):  # whoever shares the server may write here
        return None


def _event_of(place: str, fields: dict[str, str]) -> TaskEvent:
    due = fields.get("due_us")
    return TaskEvent(
        id=place,
        event=fields["event"],
        task_id=shown(fields["task_id"]),
        queue=shown(fields["queue"]),
        task=shown(fields["task"]),
        at=utc_datetime(order_of(place)[0] * _MILLISECOND_US),
        attempt=int(fields["attempt"]),
        owner=shown(fields["owner"]),
        due_at=utc_datetime(int(due)) if due else None,
        lag_seconds=_seconds(fields.get("lag_us")),
        runtime_seconds=_seconds(fields.get("run_us")),
        reason=shown(fields.get("reason", "")),
    )


def _seconds(microseconds: str | None) -> float | None:
    return int(microseconds) / MICROSECONDS if microseconds else None
