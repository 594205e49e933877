"""Groups and chains, which enqueue tasks after other tasks have ended. This module is part of the typed store: see
`rota.protocol.store`.

A chain is a list of tasks. When a task of the chain is done, the transition that ends it also enqueues the next task. A
group consists of any number of tasks and chains, which are its members. The task that follows a group, its follow-up,
is enqueued when the group is closed and its last member has ended. Follow-ups are stored in the text form that
`follow_text` writes. The scripts parse this text only when they need the follow-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rota.protocol.new_tasks import NOTHING_FOLLOWS, Enqueued, NewMember, parse_enqueued
from rota.protocol.scripts import Raw, ScriptCall, Transitions, names_of, reply, time_or_none
from rota.protocol.task_states import ENDS
from rota.protocol.wire import Arg, pack, text_of


class Opening(NamedTuple):
    """The follow-ups with which a group is opened, each written by `follow_text`.

    At most one of them is enqueued when the group ends: `on_dead` if it is set and a member is dead, otherwise `then`.
    If the group was cancelled, neither is enqueued.
    """

    then: bytes = NOTHING_FOLLOWS
    on_dead: bytes = NOTHING_FOLLOWS


@dataclass(frozen=True, slots=True)
class Into:
    """The group to which new members are added, and the conditions for adding them."""

    group: str = ""  # "" for chains outside of any group
    opening: Opening | None = None  # opens the group if it does not exist; None if the group must already exist
    # The number of items that the group should have accepted before this call. If the actual number differs, the call
    # changes nothing. None to skip this check.
    cursor: int | None = None
    closes: bool = False  # whether the group is closed after these members


class AddStatus(StrEnum):
    """The result of adding members to a group. If the status is CURSOR or ENDED, nothing was changed."""

    OK = "ok"  # the call was processed; `enqueued` has the result of each item
    CURSOR = "cursor"  # the group has accepted a different number of items than expected
    ENDED = "ended"  # the group has ended, was cancelled, or is not known


class Added(NamedTuple):
    """The result of adding members."""

    status: AddStatus
    cursor: int  # number of items that the group has accepted so far
    enqueued: tuple[Enqueued, ...]  # the result of each item; a duplicate did not become a member


class GroupPhase(StrEnum):
    """The phase of a group: whether it accepts members, and whether it can end."""

    OPEN = "open"  # the group accepts members and cannot end
    CLOSED = "closed"  # the group still accepts members, and ends when its last member has ended
    CANCELLED = "cancelled"  # the group accepts no members, and ends without a follow-up
    ENDED = "ended"


class GroupState(NamedTuple):
    """The state of a group. Times are Redis time in microseconds."""

    id: str
    phase: GroupPhase
    is_cancelled: bool
    total: int  # number of members accepted
    left: int  # number of members that have not ended
    cursor: int  # number of items accepted so far from an enqueue that takes several calls
    opened_us: int
    ended_us: int | None  # None if the group has not ended
    followed_by: str  # id of the task that was enqueued when the group ended; "" for none
    then: str  # while the group has not ended, id of the task that will follow it; "" for none
    on_dead: str  # like `then`, but if a member is dead
    ended: Mapping[str, int]  # number of ended members by outcome; the keys are ENDS


class GroupEnd(StrEnum):
    """Which follow-up was enqueued when a group ended, if any. CANCELLED means that the group was cancelled."""

    THEN = "then"
    ON_DEAD = "on_dead"
    NOTHING = "nothing"
    CANCELLED = "cancelled"


class Groups(NamedTuple):
    """A page of the groups that have not ended, the oldest first."""

    total: int  # number of groups that have not ended
    page: tuple[GroupState, ...]
    ended: Mapping[GroupEnd, int]  # number of groups that have ever ended, by the follow-up that was enqueued


class CancelledGroup(NamedTuple):
    """A batch of the members of a cancelled group. The caller has to cancel each of them."""

    is_known: bool  # False if the group has ended or never existed
    cursor: str  # where the next batch begins; "0" after the last batch
    ids: tuple[str, ...]


class Room(NamedTuple):
    """The reply to a client that waits for members of a group to end: how many are left, and whether the wait is
    over."""

    has_come: bool  # whether the wait is already over; if not, `group ID` is added to the client's reply list later
    left: int | None  # number of members that have not ended; None if the group has ended


class Predecessor(NamedTuple):
    """The task or group that a task follows."""

    name: str  # `task ID` or `group ID`; "" if it was not found in this batch
    cursor: str  # where the next batch begins; "" after the last batch


class HealedMembers(NamedTuple):
    """The reply to `heal_members`, which checks one batch of the members of all groups."""

    cursor: str
    ended: int  # number of checked members that were not live, and were removed


def parse_added(raw: Raw) -> Added:
    """Parse the reply to `add_members`: `[status, cursor, [status of each item...]]`."""
    status, cursor, statuses = raw
    return Added(AddStatus(text_of(status)), int(cursor), tuple(parse_enqueued(statuses)))


def parse_group(raw: Raw) -> GroupState | None:
    """Parse the state of one group: a list of the fields of GroupState in their order, followed by the number of ended
    members for each outcome in ENDS. An empty row means that the group is not known."""
    if not raw:
        return None
    name, phase, is_cancelled, total, left, cursor, opened_us, ended_us, followed_by, then, on_dead, *ended = raw
    return GroupState(
        text_of(name), GroupPhase(text_of(phase)), bool(int(is_cancelled)), int(total), int(left), int(cursor),
        int(opened_us), time_or_none(ended_us), text_of(followed_by), text_of(then), text_of(on_dead),
        dict(zip(ENDS, map(int, ended), strict=True)),
    )  # fmt: skip


def parse_groups(raw: Raw) -> Groups:
    """Parse the reply to `groups`: `[total, [row of a group...], [count...]]`. The counts are the numbers of ended
    groups, in the order of GroupEnd."""
    total, rows, ends = raw
    page = tuple(group for group in map(parse_group, rows) if group)
    return Groups(int(total), page, dict(zip(GroupEnd, map(int, ends), strict=True)))


def parse_cancelled_group(raw: Raw) -> CancelledGroup:
    """Parse the reply to `cancel_group`: `[1 if the group is known else 0, cursor, [id of a member...]]`."""
    known, cursor, ids = raw
    return CancelledGroup(bool(known), text_of(cursor), names_of(ids))


parse_predecessor = reply(Predecessor, text_of, text_of)
parse_healed_members = reply(HealedMembers, text_of, int)


def parse_room(raw: Raw) -> Room:
    """Parse the reply to a wait for members: `[1 if the wait is over else 0, number of members left]`. The number is -1
    if the group has ended."""
    come, left = map(int, raw)
    return Room(bool(come), left if left >= 0 else None)


class Dependents(Transitions):
    """The transitions of groups and chains of one namespace."""

    def add_members(self, nonce: str, members: Sequence[NewMember], into: Into = Into()) -> ScriptCall[Added]:
        """Accept up to BATCH tasks, like `enqueue`, and add them to a group as members. A member that begins a chain is
        sent with the rest of its chain. If the call is repeated with the same nonce within 60 s, it changes nothing and
        returns the same reply."""
        opening = into.opening or Opening()
        cursor = "" if into.cursor is None else into.cursor
        args: list[Arg] = [nonce, into.group, int(into.opening is not None), *opening, cursor, int(into.closes)]
        for task, following in members:
            args += (task.id, task.queue, task.how, task.body, following)
        return self._call("add_members", pack(args), parse_added)

    def close_group(self, group: str) -> ScriptCall[bool]:
        """Close a group after its last member has been added. A group without live members ends at once. Returns False
        if the group has ended or never existed."""
        return self._call("close_group", pack((group,)), bool)

    def cancel_group(self, group: str, cursor: str = "0") -> ScriptCall[CancelledGroup]:
        """Cancel a group: its follow-up is not enqueued, and it accepts no new members. The reply contains the ids of a
        batch of its members, and the caller has to cancel each of these members. Begin with cursor "0" and repeat with
        the cursor of each reply until it is "0" again."""
        return self._call("cancel_group", pack((group, cursor)), parse_cancelled_group)

    def group(self, group: str) -> ScriptCall[GroupState | None]:
        """Return the state of a group, or None if it never existed or ended more than 50 s ago."""
        return self._call("group", pack((group, *ENDS)), parse_group)

    def groups(self, offset: int = 0, count: int = 100) -> ScriptCall[Groups]:
        """Return a page of the groups that have not ended; `count` is at most BATCH."""
        return self._call("groups", pack((offset, count, *ENDS)), parse_groups)

    def pending(self, task_id: str, cursor: str) -> ScriptCall[Predecessor]:
        """Find the task or group that has to end before this pending task is enqueued. Begin with cursor "" and repeat
        with the cursor of each reply until it is ""."""
        return self._call("pending", pack((task_id, cursor)), parse_predecessor)

    def heal_members(self, cursor: str) -> ScriptCall[HealedMembers]:
        """Find members whose tasks have ended without their group having noticed, because an older version of Rota
        ended the task, or because it was deleted by hand. Remove them from their groups, and enqueue the follow-ups of
        groups that end as a result. Begin with cursor "" and repeat with the cursor of each reply until it is "0"."""
        return self._call("heal_members", pack((cursor,)), parse_healed_members)

    def await_room(self, client: str, group: str, most_left: int) -> ScriptCall[Room]:
        """Return how many members of a group have not ended. If these are more than `most_left`, the client is notified
        as soon as only `most_left` are left or the group has ended: a script then adds a message to the reply list of
        this client, a Redis list that the client reads."""
        return self._call("await_group", pack((client, group, most_left)), parse_room)

    def await_group_end(self, client: str, group: str) -> ScriptCall[Room]:
        """Return whether a group has ended. If it has not, the client is notified when it ends: a script then adds a
        message to the reply list of this client, a Redis list that the client reads."""
        return self._call("await_group", pack((client, group, "-")), parse_room)
