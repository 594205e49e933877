"""The states of a task and the task events. For each state, this module defines where it is stored, which scripts move
a task out of it, and what it means to a caller. Each task event is an entry of the stream `{NS}:events` and describes
one change of a task.

The table `STATES` is the only place that lists the states, and `ENDS` is derived from it. Both are used by the client,
`rota task ls`, `rota queue explain`, `rota group`, the audit, the Django backend and the drawing in
docs/state-machines.md. The model test compares each move of the real scripts with the table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Final

from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.scripts import Raw
from rota.protocol.wire import shown, text_of


class State(StrEnum):
    """The state of a task, as `TaskStatus.state` reports it."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


class TaskPhase(Enum):
    """The phase of a task's life to which a state belongs."""

    WAITING = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The properties of one state: a row of the table `STATES`."""

    phase: TaskPhase
    meaning: str  # the rest of a sentence that begins with "The task"
    stored_in: str = ""  # key, without the namespace's prefix, that holds the task's entry or id; "" if no key does
    # For each next state, the scripts that move a task there.
    moves: Mapping[State, tuple[str, ...]] = field(default_factory=dict)
    has_attempt: bool = False  # whether the status reports the number of the running, next or last attempt
    # Why `rota queue explain` does not expect a task in this state to be claimed.
    not_claimed: str = "it has ended as {state} and will not be claimed"


_SCHEDULING: Final = ("put_schedule", "pause_schedule", "remove_schedule", "declare")
_ACCEPTING: Final = ("enqueue", "add_members")
CREATED: Final[Mapping[State, tuple[str, ...]]] = {
    State.SCHEDULED: (*_ACCEPTING, "advance", "put_schedule", "run_schedule", "adopt_scheduled", "import_tasks"),
    State.READY: (*_ACCEPTING, "adopt_legacy", "restore", "promote", "import_tasks"),
    State.RUNNING: ("turn", "import_tasks"),
    State.DEAD: ("turn", "promote", "adopt_scheduled", "adopt_legacy", "reap", "import_tasks"),
}
"""The states in which a task begins, and the scripts that create or adopt it there. `turn`, `promote` and `reap` adopt
items that other programs pushed."""

STATES: Final[Mapping[State, StateFacts]] = {
    State.PENDING: StateFacts(
        TaskPhase.WAITING,
        "follows another task or a group that has not ended; the script that records that end enqueues the task",
        not_claimed="it is pending: {why}",
    ),
    State.READY: StateFacts(
        TaskPhase.WAITING,
        "waits in a lane of its queue for a worker",
        stored_in="queue:NAME, queue:NAME-delayed",
        moves={
            State.RUNNING: ("turn",),
            State.CANCELLED: ("cancel", "turn", "restore", "purge"),
            State.DEAD: ("turn", "restore"),
        },
        has_attempt=True,
    ),
    State.SCHEDULED: StateFacts(
        TaskPhase.WAITING,
        "waits for its due time",
        stored_in="delayed",
        moves={
            State.READY: ("promote", "restore"),
            State.CANCELLED: ("cancel", "promote", *_SCHEDULING),
            State.DEAD: ("promote", "restore"),
        },
        has_attempt=True,
    ),
    State.RUNNING: StateFacts(
        TaskPhase.RUNNING,
        "is claimed by a worker or a consumer",
        stored_in="inflight:OWNER",
        moves={
            State.DONE: ("turn", "reap", "return_prefetched"),
            State.READY: ("turn", "return_prefetched", "reap", "restore"),
            State.SCHEDULED: ("turn", "throttle", "reap", "return_prefetched"),
            State.CANCELLED: ("turn", "return_prefetched", "reap"),
            State.EXPIRED: ("turn", "reap", "return_prefetched"),
            State.DEAD: ("turn", "reap", "return_prefetched", "restore"),
        },
        has_attempt=True,
        not_claimed="it has already been claimed by {owner}",
    ),
    State.DONE: StateFacts(TaskPhase.SUCCEEDED, "has ended; its function returned"),
    State.DEAD: StateFacts(
        TaskPhase.FAILED,
        "has no attempts left, or cannot be run; it is kept until it is revived or purged",
        stored_in="dead",
        moves={State.READY: ("revive",), State.UNKNOWN: ("purge_dead", "trim")},
        has_attempt=True,
        not_claimed="it is dead and will not be claimed: `rota dead revive {id}` returns it to its queue",
    ),
    State.CANCELLED: StateFacts(TaskPhase.FAILED, "was cancelled, or its queue was purged"),
    State.EXPIRED: StateFacts(TaskPhase.FAILED, "was too old to start"),
    State.UNKNOWN: StateFacts(
        TaskPhase.UNKNOWN,
        "is not known to the server",
        not_claimed="the server knows nothing about it: {why}",
    ),
}

LISTED: Final = tuple(state for state, facts in STATES.items() if facts.stored_in)
"""The states whose tasks `Client.peek` and `rota task ls` list."""

WAITING: Final = frozenset(state for state, facts in STATES.items() if facts.phase is TaskPhase.WAITING)
ENDED: Final = frozenset(
    state for state, facts in STATES.items() if facts.phase in (TaskPhase.SUCCEEDED, TaskPhase.FAILED)
)

PURGED: Final = "purged"
"""The recorded end of a task whose queue was purged. The state of such a task is `cancelled`."""

ENDS: Final[tuple[str, ...]] = (*(state.value for state in STATES if state in ENDED), PURGED)
"""The ways in which a task ends, in the order in which they are shown."""

ENDS_OF_GONE: Final = tuple(how for how in ENDS if how == PURGED or not STATES[State(how)].stored_in)
"""The ends after which the server no longer stores the task: all but `dead`."""

_PLACE: Final = re.compile(r"\d{1,20}(-\d{1,20})?", re.ASCII)
_MILLISECOND_US: Final = 1000


class EventName(StrEnum):
    """The name of a task event. docs/protocol.md lists the states before and after each event."""

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
    """One change of a task. Texts are "" and times are None if they do not apply.

    * `id`: the id of the event, to continue reading after it.
    * `event`: a name listed in docs/protocol.md. Later versions may add names.
    * `at`: when the change happened, by the server's time.
    * `attempt`: the number of the attempt that began or ended; for a waiting task, the number of attempts so far.
    * `owner`: the worker that has or had the task, as `node:slot:nonce`.
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
    """A page of task events, and the range of the events that are kept."""

    wanted: bool  # whether task events are being written at present
    oldest: str  # id of the oldest event that is kept; "" if there is none
    latest: str  # id of the latest event; "" if there is none
    end: str  # where the next page begins; "" if this page has no events
    events: tuple[TaskEvent, ...]  # the events, without stream entries that other programs wrote


def is_place(text: str) -> bool:
    """Whether the text is a position in the events: the id of an event, or "0" for the beginning."""
    return _PLACE.fullmatch(text) is not None


def order_of(place: str) -> tuple[int, int]:
    """Return the two numbers of an event id, by which events are ordered: a time in milliseconds, and a number within
    that millisecond."""
    milliseconds, _, number = place.partition("-")
    return int(milliseconds), int(number or 0)


def parse_events(raw: Raw) -> EventsPage:
    """Parse a page of events: `[1 if events are being written else 0, id of the oldest or "", id of the latest or "",
    [[id, [field, value, ...]], ...]]`."""
    wanted, oldest, latest, found = raw
    end = text_of(found[-1][0]) if found else ""
    events = tuple(event for event in map(_parse_event, found) if event is not None)
    return EventsPage(bool(wanted), text_of(oldest), text_of(latest), end, events)


def _parse_event(raw: Raw) -> TaskEvent | None:
    event_id = text_of(raw[0])
    pairs = list(map(text_of, raw[1]))
    try:
        return _event_of(event_id, dict(zip(pairs[::2], pairs[1::2], strict=True)))
    except (LookupError, ValueError, ArithmeticError, OSError):  # another program may have written this entry
        return None


def _event_of(event_id: str, fields: dict[str, str]) -> TaskEvent:
    due = fields.get("due_us")
    return TaskEvent(
        id=event_id,
        event=fields["event"],
        task_id=shown(fields["task_id"]),
        queue=shown(fields["queue"]),
        task=shown(fields["task"]),
        at=utc_datetime(order_of(event_id)[0] * _MILLISECOND_US),
        attempt=int(fields["attempt"]),
        owner=shown(fields["owner"]),
        due_at=utc_datetime(int(due)) if due else None,
        lag_seconds=_seconds(fields.get("lag_us")),
        runtime_seconds=_seconds(fields.get("run_us")),
        reason=shown(fields.get("reason", "")),
    )


def _seconds(microseconds: str | None) -> float | None:
    return int(microseconds) / MICROSECONDS if microseconds else None
