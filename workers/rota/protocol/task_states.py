"""The states of a task: where each is stored, which scripts move a task out of it, and what it means to a caller.

This table is the only place that lists the states. The client, `rota task ls`, `rota queue explain`, the Django backend
and the drawing in docs/state-machines.md derive from it. The model test compares each move of the real scripts with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final


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
    """The part of a task's life that a state belongs to."""

    WAITING = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class StateFacts:
    """One row of the table."""

    phase: TaskPhase
    meaning: str  # completes "The task ..."
    stored_in: str = ""  # the key below the namespace that holds the task's entry or id; "" if none does
    moves: Mapping[State, tuple[str, ...]] = field(
        default_factory=dict
    )  # next state: the scripts that move a task there
    has_attempt: bool = False  # whether the status has the number of an attempt: the running, the next or the last one
    not_claimed: str = "it has ended as {state} and will not be claimed"  # why `rota queue explain` predicts no claim


_SCHEDULING: Final = ("put_schedule", "pause_schedule", "remove_schedule", "declare")
_ACCEPTING: Final = ("enqueue", "add_members")
CREATED: Final[Mapping[State, tuple[str, ...]]] = {
    State.SCHEDULED: (*_ACCEPTING, "advance", "put_schedule", "run_schedule", "adopt_scheduled"),
    State.READY: (*_ACCEPTING, "adopt_classic", "restore", "promote"),
    State.RUNNING: ("turn",),
    State.DEAD: ("turn", "promote", "adopt_scheduled", "adopt_classic", "retire"),
}
"""The states in which a task begins, and the scripts that create or adopt it there: `turn`, `promote` and `retire` meet
items that other programs pushed."""

STATES: Final[Mapping[State, StateFacts]] = {
    State.PENDING: StateFacts(
        TaskPhase.WAITING,
        "follows another task or a group that has not ended; the script that ends it enqueues the task",
        not_claimed="it is pending: {why}",
    ),
    State.READY: StateFacts(
        TaskPhase.WAITING,
        "waits in a lane of its queue for a worker",
        stored_in="queue:NAME, queue:NAME-delayed",
        moves={
            State.RUNNING: ("turn",),
            State.CANCELLED: ("cancel", "turn", "restore", "purge"),
            State.DEAD: ("turn",),
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
            State.DEAD: ("promote",),
        },
        has_attempt=True,
    ),
    State.RUNNING: StateFacts(
        TaskPhase.RUNNING,
        "is claimed by a worker or a consumer",
        stored_in="inflight:OWNER",
        moves={
            State.DONE: ("turn", "retire", "recall"),
            State.READY: ("turn", "recall", "retire", "restore"),
            State.SCHEDULED: ("turn", "throttle", "retire", "recall"),
            State.CANCELLED: ("turn", "recall", "retire"),
            State.EXPIRED: ("turn", "retire", "recall"),
            State.DEAD: ("turn", "retire", "recall"),
        },
        has_attempt=True,
        not_claimed="it has been claimed, by {owner}",
    ),
    State.DONE: StateFacts(TaskPhase.SUCCEEDED, "has ended; its function returned"),
    State.DEAD: StateFacts(
        TaskPhase.FAILED,
        "has no attempt left, or cannot run; it is kept until it is revived or purged",
        stored_in="dead",
        moves={State.READY: ("revive",), State.UNKNOWN: ("purge_dead", "trim")},
        has_attempt=True,
        not_claimed="it is dead and will not be claimed: `rota dead revive {id}` puts it back",
    ),
    State.CANCELLED: StateFacts(TaskPhase.FAILED, "was cancelled, or its queue was purged"),
    State.EXPIRED: StateFacts(TaskPhase.FAILED, "was too old to start"),
    State.UNKNOWN: StateFacts(
        TaskPhase.UNKNOWN,
        "is not known to the server",
        not_claimed="nothing is known of it: {why}",
    ),
}

LISTED: Final = tuple(state for state, facts in STATES.items() if facts.stored_in)
"""The states whose tasks `Client.peek` and `rota task ls` list."""

WAITING: Final = frozenset(state for state, facts in STATES.items() if facts.phase is TaskPhase.WAITING)
ENDED: Final = frozenset(
    state for state, facts in STATES.items() if facts.phase in (TaskPhase.SUCCEEDED, TaskPhase.FAILED)
)
