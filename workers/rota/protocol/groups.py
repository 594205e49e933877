"""Groups and chains: tasks that follow others, a part of the typed store: see `rota.protocol.store`.

A chain is a task and those that follow it, one after the other: each is enqueued in the transition that ends the one
before as done. A group is any number of tasks and chains, its members, and what follows when it is closed and the last
of them has ended. What follows is written down as text, by `follow_text`, and never read before it is its turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rota.protocol.command import Command, Raw, Transitions, names_of, reply, time_or_none
from rota.protocol.new_tasks import NOTHING_FOLLOWS, Enqueued, NewMember, parse_enqueued
from rota.protocol.wire import Arg, pack, text_of


class Opening(NamedTuple):
    """What a group begins with, each by `follow_text`. One of them is enqueued when it ends: `on_dead` if there is any
    and a member is dead, else `then`; neither if the group was cancelled."""

    then: bytes = NOTHING_FOLLOWS
    on_dead: bytes = NOTHING_FOLLOWS


@dataclass(frozen=True, slots=True)
class Into:
    """Where members go. `group`: "" for chains that are in none. `opening`: the group is opened by this call, unless it
    is there already, None: it has to be there. `cursor`: how many items were accepted before; given, the call counts
    only when that is so, and moves it on by its members. `closes`: these are the last."""

    group: str = ""
    opening: Opening | None = None
    cursor: int | None = None
    closes: bool = False


class AddWord(StrEnum):
    """`ok`: they were looked at. `cursor`: the group has accepted another number of items, and nothing was done.
    `ended`: it has ended, was cancelled or is not known, and nothing was done."""

    OK = "ok"
    CURSOR = "cursor"
    ENDED = "ended"


class Added(NamedTuple):
    """What became of new members. `cursor`: how many items the group has accepted by now. `enqueued`: of each, if any;
    one that was not accepted is no member."""

    word: AddWord
    cursor: int
    enqueued: tuple[Enqueued, ...]


class GroupPhase(StrEnum):
    """`open`: it takes members, and cannot end. `closed`: it ends with its last member, and takes some until then.
    `cancelled`: likewise, takes none, and nothing will follow. `ended`."""

    OPEN = "open"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    ENDED = "ended"


class GroupState(NamedTuple):
    """How it is with a group. `total`: members accepted. `left`: those that have not ended; `done` and what stands
    behind: how the others did. `cursor`: how many items of a long enqueue were accepted. `ended_us`: None before.
    `followed_by`: the id of the task that was enqueued at its end, "" for none; `is_cancelled` tells why there is none.
    `then`, `on_dead`: before its end, the ids of what may be enqueued then, "" for nothing.
    """

    id: str
    phase: GroupPhase
    is_cancelled: bool
    total: int
    left: int
    done: int
    dead: int
    cancelled: int
    expired: int
    purged: int
    cursor: int
    opened_us: int
    ended_us: int | None
    followed_by: str
    then: str = ""
    on_dead: str = ""


class GroupEnd(StrEnum):
    """What followed when a group ended; or that it was cancelled."""

    THEN = "then"
    ON_DEAD = "on_dead"
    NOTHING = "nothing"
    CANCELLED = "cancelled"


class Groups(NamedTuple):
    """A page of the groups that have not ended, the longest open first. `total`: how many there are. `ended`: how many
    ever did, by how."""

    total: int
    page: tuple[GroupState, ...]
    ended: Mapping[GroupEnd, int]


class CancelledGroup(NamedTuple):
    """A portion of the members of a cancelled group, each still to be cancelled. `is_known`: false of one that has
    ended, or never was. `cursor`: what to go on with, "0" behind the last portion."""

    is_known: bool
    cursor: str
    ids: tuple[str, ...]


class Room(NamedTuple):
    """`left`: how many members have not ended; None when the group has. `has_come`: what was asked for. Else a word
    `group ID` will come to the reply list."""

    has_come: bool
    left: int | None


class Predecessor(NamedTuple):
    """What a task follows: `task ID` or `group ID`, "" if this portion has none. `cursor`: what to go on with, ""
    behind the last portion."""

    name: str
    cursor: str


class HealedMembers(NamedTuple):
    """A portion that was looked at. `ended`: how many did not live."""

    cursor: str
    ended: int


def parse_added(raw: Raw) -> Added:
    """`[word, cursor, [word...]]`"""
    word, cursor, words = raw
    return Added(AddWord(text_of(word)), int(cursor), tuple(parse_enqueued(words)))


def parse_group(raw: Raw) -> GroupState | None:
    """A row, in the order of the fields of GroupState; empty for a group that is not known."""
    if not raw:
        return None
    name, phase, is_cancelled, *numbers, ended_us, followed_by, then, on_dead = raw
    total, left, done, dead, cancelled, expired, purged, cursor, opened_us = map(int, numbers)
    return GroupState(
        text_of(name), GroupPhase(text_of(phase)), bool(int(is_cancelled)), total, left, done, dead, cancelled, expired,
        purged, cursor, opened_us, time_or_none(ended_us), *names_of((followed_by, then, on_dead)),
    )  # fmt: skip


def parse_groups(raw: Raw) -> Groups:
    """`[total, [row...], [how many ended so...]]`, these in the order of GroupEnd."""
    total, rows, ends = raw
    page = tuple(group for group in map(parse_group, rows) if group)
    return Groups(int(total), page, dict(zip(GroupEnd, map(int, ends), strict=True)))


def parse_cancelled_group(raw: Raw) -> CancelledGroup:
    """`[known 0|1, cursor, [id...]]`"""
    known, cursor, ids = raw
    return CancelledGroup(bool(known), text_of(cursor), names_of(ids))


parse_predecessor = reply(Predecessor, text_of, text_of)
parse_healed_members = reply(HealedMembers, text_of, int)


def parse_room(raw: Raw) -> Room:
    """`[come 0|1, left or -1]`"""
    come, left = map(int, raw)
    return Room(bool(come), left if left >= 0 else None)


class Dependents(Transitions):
    """What is asked and done about groups and chains of one namespace."""

    def add_members(self, nonce: str, members: Sequence[NewMember], into: Into = Into()) -> Command[Added]:
        """Accept up to BATCH tasks as `enqueue` does, with what follows them, and as members of a group. A call
        repeated with its nonce within 60 s changes nothing and returns the same."""
        opening = into.opening or Opening()
        cursor = "" if into.cursor is None else into.cursor
        args: list[Arg] = [nonce, into.group, int(into.opening is not None), *opening, cursor, int(into.closes)]
        for task, following in members:
            args += (task.id, task.queue, task.how, task.body, following)
        return self._command("add_members", pack(args), parse_added)

    def close_group(self, group: str) -> Command[bool]:
        """Say that the last member was added: a group without any that lives ends at once. False when it has ended, or
        never was."""
        return self._command("close_group", pack((group,)), bool)

    def cancel_group(self, group: str, cursor: str = "0") -> Command[CancelledGroup]:
        """Have nothing follow a group any more, and take no new members. Begin with cursor "0", cancel each of the ids,
        and go on with the cursor of each answer until it is "0" again."""
        return self._command("cancel_group", pack((group, cursor)), parse_cancelled_group)

    def group(self, group: str) -> Command[GroupState | None]:
        """How it is with a group; None when it is not known: it never was, or ended a minute ago."""
        return self._command("group", pack((group,)), parse_group)

    def groups(self, offset: int = 0, count: int = 100) -> Command[Groups]:
        """A page of the groups that have not ended; `count` up to BATCH."""
        return self._command("groups", pack((offset, count)), parse_groups)

    def pending(self, task_id: str, cursor: str) -> Command[Predecessor]:
        """Find what a task follows that is not enqueued yet. Begin with cursor "" and go on with that of each answer
        until it is ""."""
        return self._command("pending", pack((task_id, cursor)), parse_predecessor)

    def heal_members(self, cursor: str) -> Command[HealedMembers]:
        """Have follow what follows members that do not live and of whose end nobody took notice. Begin with cursor ""
        and go on with that of each answer until it is "0"."""
        return self._command("heal_members", pack((cursor,)), parse_healed_members)

    def await_room(self, client: str, group: str, most_left: int) -> Command[Room]:
        """Have the reply list of this client told when at most so many members of a group have not ended, or it has."""
        return self._command("await_group", pack((client, group, most_left)), parse_room)

    def await_group_end(self, client: str, group: str) -> Command[Room]:
        """Have the reply list of this client told when a group has ended."""
        return self._command("await_group", pack((client, group, "-")), parse_room)
