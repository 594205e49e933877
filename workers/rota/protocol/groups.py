"""Groups and chains, in which tasks follow other tasks. This is a part of the typed store: see `rota.protocol.store`.

A chain is a list of tasks. Each task is enqueued by the transition that ends the task before it as done. A group
consists of any number of tasks and chains, which are its members. Its follow-up is enqueued when the group is closed
and its last member has ended. Follow-ups are stored as texts that `follow_text` writes. A text is not parsed before it
is needed.
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
    """The destination of new members."""

    group: str = ""  # "" for chains outside of any group
    opening: Opening | None = None  # opens the group unless it exists; None if the group must exist
    cursor: int | None = None  # items accepted so far; the call takes effect only if this matches, and advances it
    closes: bool = False  # whether these members are the last ones


class AddStatus(StrEnum):
    """The reply to new members. CURSOR and ENDED mean that nothing was changed."""

    OK = "ok"  # the members were processed
    CURSOR = "cursor"  # the group has accepted a different number of items
    ENDED = "ended"  # the group has ended, was cancelled, or is not known


class Added(NamedTuple):
    """The result of adding members."""

    status: AddStatus
    cursor: int  # number of items that the group has accepted so far
    enqueued: tuple[Enqueued, ...]  # the result of each item; an item that was not accepted is not a member


class GroupPhase(StrEnum):
    """The phase of a group."""

    OPEN = "open"  # the group takes members and cannot end
    CLOSED = "closed"  # the group ends with its last member and takes members until then
    CANCELLED = "cancelled"  # the group ends with its last member, takes no members, and enqueues no follow-up
    ENDED = "ended"


class GroupState(NamedTuple):
    """The state of a group. Times are Redis time in microseconds."""

    id: str
    phase: GroupPhase
    is_cancelled: bool
    total: int  # number of members accepted
    left: int  # number of members that have not ended
    cursor: int  # number of items of a long enqueue that were accepted
    opened_us: int
    ended_us: int | None  # None if the group has not ended
    followed_by: str  # id of the task that was enqueued at the group's end, "" for none (see `is_cancelled`)
    then: str  # before the end, id of the task that may be enqueued at the end; "" for none
    on_dead: str  # like `then`, for the case that a member is dead
    ended: Mapping[str, int]  # number of members by outcome, one of ENDS


class GroupEnd(StrEnum):
    """The follow-up that was enqueued when a group ended, if any; CANCELLED if the group was cancelled."""

    THEN = "then"
    ON_DEAD = "on_dead"
    NOTHING = "nothing"
    CANCELLED = "cancelled"


class Groups(NamedTuple):
    """A page of the groups that have not ended, the oldest first."""

    total: int  # number of groups that have not ended
    page: tuple[GroupState, ...]
    ended: Mapping[GroupEnd, int]  # number of groups that ever ended, by outcome


class CancelledGroup(NamedTuple):
    """A batch of the members of a cancelled group. The caller has to cancel each of them."""

    is_known: bool  # False if the group has ended or never existed
    cursor: str  # where the next batch begins; "0" after the last batch
    ids: tuple[str, ...]


class Room(NamedTuple):
    """The reply to a client that waits for members of a group to end."""

    has_come: bool  # whether the wait is over already; if not, `group ID` will be sent to the client's reply list
    left: int | None  # number of members that have not ended; None if the group has ended


class Predecessor(NamedTuple):
    """The task or group that a task follows."""

    name: str  # `task ID` or `group ID`; "" if this batch has none
    cursor: str  # where the next batch begins; "" after the last batch


class HealedMembers(NamedTuple):
    """A batch of members that was checked."""

    cursor: str
    ended: int  # number of these members that were not live


def parse_added(raw: Raw) -> Added:
    """Parse `[status, cursor, [status...]]`."""
    status, cursor, statuses = raw
    return Added(AddStatus(text_of(status)), int(cursor), tuple(parse_enqueued(statuses)))


def parse_group(raw: Raw) -> GroupState | None:
    """Parse a row in the order of the fields of GroupState, with a number for each of ENDS at the end of the row. An
    empty row stands for a group that is not known."""
    if not raw:
        return None
    name, phase, is_cancelled, total, left, cursor, opened_us, ended_us, followed_by, then, on_dead, *ended = raw
    return GroupState(
        text_of(name), GroupPhase(text_of(phase)), bool(int(is_cancelled)), int(total), int(left), int(cursor),
        int(opened_us), time_or_none(ended_us), text_of(followed_by), text_of(then), text_of(on_dead),
        dict(zip(ENDS, map(int, ended), strict=True)),
    )  # fmt: skip


def parse_groups(raw: Raw) -> Groups:
    """Parse `[total, [row...], [count...]]`. The counts are in the order of GroupEnd."""
    total, rows, ends = raw
    page = tuple(group for group in map(parse_group, rows) if group)
    return Groups(int(total), page, dict(zip(GroupEnd, map(int, ends), strict=True)))


def parse_cancelled_group(raw: Raw) -> CancelledGroup:
    """Parse `[known 0|1, cursor, [id...]]`."""
    known, cursor, ids = raw
    return CancelledGroup(bool(known), text_of(cursor), names_of(ids))


parse_predecessor = reply(Predecessor, text_of, text_of)
parse_healed_members = reply(HealedMembers, text_of, int)


def parse_room(raw: Raw) -> Room:
    """Parse `[come 0|1, left or -1]`."""
    come, left = map(int, raw)
    return Room(bool(come), left if left >= 0 else None)


class Dependents(Transitions):
    """The transitions of groups and chains of one namespace."""

    def add_members(self, nonce: str, members: Sequence[NewMember], into: Into = Into()) -> ScriptCall[Added]:
        """Accept up to BATCH tasks as `enqueue` does, with their follow-ups, and as members of a group.

        A call that is repeated with its nonce within 60 s changes nothing and returns the same reply.
        """
        opening = into.opening or Opening()
        cursor = "" if into.cursor is None else into.cursor
        args: list[Arg] = [nonce, into.group, int(into.opening is not None), *opening, cursor, int(into.closes)]
        for task, following in members:
            args += (task.id, task.queue, task.how, task.body, following)
        return self._call("add_members", pack(args), parse_added)

    def close_group(self, group: str) -> ScriptCall[bool]:
        """Close a group because its last member was added. A group without live members ends at once. Returns False if
        the group has ended or never existed."""
        return self._call("close_group", pack((group,)), bool)

    def cancel_group(self, group: str, cursor: str = "0") -> ScriptCall[CancelledGroup]:
        """Cancel the follow-up of a group, and accept no new members. Begin with cursor "0", cancel each returned id,
        and repeat with the cursor of each reply until it is "0" again."""
        return self._call("cancel_group", pack((group, cursor)), parse_cancelled_group)

    def group(self, group: str) -> ScriptCall[GroupState | None]:
        """Return the state of a group, or None if it never existed or ended over a minute ago."""
        return self._call("group", pack((group, *ENDS)), parse_group)

    def groups(self, offset: int = 0, count: int = 100) -> ScriptCall[Groups]:
        """Return a page of the groups that have not ended; `count` is at most BATCH."""
        return self._call("groups", pack((offset, count, *ENDS)), parse_groups)

    def pending(self, task_id: str, cursor: str) -> ScriptCall[Predecessor]:
        """Find the task or group that a pending task follows. Begin with cursor "" and repeat with the cursor of each
        reply until it is ""."""
        return self._call("pending", pack((task_id, cursor)), parse_predecessor)

    def heal_members(self, cursor: str) -> ScriptCall[HealedMembers]:
        """Remove members that are no longer live from their groups, and enqueue what follows. Such members were ended
        by an older version or deleted by hand. Begin with cursor "" and repeat with the cursor of each reply until it
        is "0".
        """
        return self._call("heal_members", pack((cursor,)), parse_healed_members)

    def await_room(self, client: str, group: str, most_left: int) -> ScriptCall[Room]:
        """Have this client's reply list notified when at most `most_left` members of a group are left, or when the
        group has ended."""
        return self._call("await_group", pack((client, group, most_left)), parse_room)

    def await_group_end(self, client: str, group: str) -> ScriptCall[Room]:
        """Have this client's reply list notified when a group has ended."""
        return self._call("await_group", pack((client, group, "-")), parse_room)
