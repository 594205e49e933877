"""Where a group stands."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.durations import utc_datetime
from rota.protocol.command import Steps, ask
from rota.protocol.groups import GroupPhase, GroupState
from rota.protocol.store import Store
from rota.tasks.options import require_name


class GroupStanding(StrEnum):
    """`open`: items are still being added, it cannot end. `closed`: it ends with its last member. `cancelled`:
    likewise, it takes no more, and nothing follows. `ended`. `unknown`: it ended a minute ago, or never was."""

    OPEN = GroupPhase.OPEN.value
    CLOSED = GroupPhase.CLOSED.value
    CANCELLED = GroupPhase.CANCELLED.value
    ENDED = GroupPhase.ENDED.value
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Where a group stands, and how it is with its members; a chain is one member.

    `total` were accepted and `left` have not ended; the others ended as `done`, `dead`, `cancelled`, `expired`, or
    `purged` with their queue. `cursor`: how many items of its enqueue were accepted, duplicates counted.
    `is_cancelled`: it was cancelled as a whole. `then`, `on_dead`: before its end, the ids of what may follow.
    `followed_by`: the id of what was enqueued at its end. Each is "" for nothing.
    """

    id: str
    state: GroupStanding
    total: int = 0
    left: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    purged: int = 0
    cursor: int = 0
    is_cancelled: bool = False
    opened_at: datetime | None = None
    ended_at: datetime | None = None
    followed_by: str = ""
    then: str = ""
    on_dead: str = ""


def group_status_of(group_id: str, found: GroupState | None) -> GroupStatus:
    """What the store found, for the caller."""
    if found is None:
        return GroupStatus(group_id, GroupStanding.UNKNOWN)
    return GroupStatus(
        group_id,
        GroupStanding(found.phase.value),
        found.total,
        found.left,
        found.done,
        found.dead,
        found.cancelled,
        found.expired,
        found.purged,
        found.cursor,
        found.is_cancelled,
        opened_at=utc_datetime(found.opened_us),
        ended_at=None if found.ended_us is None else utc_datetime(found.ended_us),
        followed_by=found.followed_by,
        then=found.then,
        on_dead=found.on_dead,
    )


def looking_at_group(store: Store, group_id: str) -> Steps[GroupStatus]:
    """How it is with a group."""
    return group_status_of(group_id, (yield from ask(store.group(require_name("id", group_id)))))


def cancelling_group(store: Store, group_id: str) -> Steps[bool]:
    """Cancel a group, and each of its members; False when it has ended, or never was."""
    cursor, is_known = "0", False
    while True:
        portion = yield from ask(store.cancel_group(group_id, cursor))
        cursor, is_known = portion.cursor, is_known or portion.is_known
        for task_id in portion.ids:
            yield store.cancel(task_id)
        if cursor == "0":
            return is_known
