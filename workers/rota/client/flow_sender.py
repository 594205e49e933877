"""The steps that enqueue chains and groups, and that continue an interrupted enqueue. Like `rota.client.sender`, this
module does no I/O.

A group of many members is sent in several calls. Each call also adds, in the same atomic step, the number of accepted
items to the group's cursor, a count in the group's record. If the same group is enqueued again, the enqueue continues
exactly at the cursor. `rota.map` fills a group from an iterator in this way, but never exceeds `max_waiting` unfinished
tasks.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isroutine
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar

from rota.client.command_replies import ClientWarnings, Denied, Uncertain
from rota.client.enqueue_options import ProgressOption, ReportProgress
from rota.client.preparation import Checks, check_group, fresh_id
from rota.client.sender import Batch, GoOn, Sender, Sending, WithId, just_repeat
from rota.client.waits import GroupQuery
from rota.errors import GroupEnded, RotaError, ServerFull, Unavailable
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.protocol.groups import Added, AddStatus, Into, Opening, Room
from rota.protocol.new_tasks import Enqueued, NewMember, followers_of
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH, Store
from rota.tasks.call import Call, CallChain, CallGroup, task_of_method

ROUND_MEMBERS: Final = 4_000  # The number of members in a round of the sender. The cursor is checked after each round.

H = TypeVar("H", bound=WithId)
T = TypeVar("T", bound=WithId)
H_co = TypeVar("H_co", bound=WithId, covariant=True)
HandleOf = Callable[[NewMember, Enqueued], H]
"""A function that makes the caller's handle from a task or a chain and the server's reply."""


class GroupHandleOf(Protocol[H_co]):
    """A function that makes the handle of an enqueued group."""

    def __call__(self, group_id: str, *, duplicate: bool) -> H_co: ...


@dataclass(frozen=True, slots=True)
class FlowContext:
    """The store, checks, sender and warnings that a client uses to send chains and groups. The senders for chains and
    for groups are made from `sender`."""

    store: Store
    checks: Checks
    sender: Sender[Any, Any, Any]
    warnings: ClientWarnings

    def handles(self, handle_of: HandleOf[T], members: Sequence[NewMember], added: Added) -> list[T]:
        """Return the handle of each member, and warn about members that no fleet serves."""
        for member, reply in zip(members, added.enqueued, strict=True):
            self.warnings.check_reply(member.task, reply)
        return [handle_of(member, reply) for member, reply in zip(members, added.enqueued, strict=True)]


class MembersSending(Generic[H]):
    """An enqueue of a chain, or of additional members for an existing group."""

    def __init__(
        self, context: FlowContext, members: Sequence[NewMember], handle_of: HandleOf[H], group_id: str = ""
    ) -> None:
        self._context = context
        self._group_id = group_id
        self._members = members
        self._handle_of = handle_of
        self._has_ended = False
        self._added = 0
        into = Into(group_id)
        self._sender: Sender[NewMember, Added, H] = context.sender.of(
            lambda batch: context.store.add_members(batch.nonce, batch.items, into), self._process_reply, self._checked
        )

    @property
    def expected(self) -> H:
        """The handle to return if the enqueue has to wait for a commit before it is sent."""
        return self._handle_of(self._members[0], Enqueued())

    def send(self) -> Sending[H]:
        """Send the members. Raises the errors of `Sender.send`, and GroupEnded if the group accepts no more."""
        return self._checked(self._sender.send(self._members))

    def _checked(self, sending: Sending[H]) -> Sending[H]:
        handles = yield from sending
        if self._has_ended:
            raise group_ended(self._group_id, f"{self._added:,} of {len(self._members):,} were added")
        return handles

    def _process_reply(self, members: Sequence[NewMember], added: Added) -> list[H]:
        if added.status is AddStatus.ENDED:
            self._has_ended = True
            return []
        self._added += len(members)
        return self._context.handles(self._handle_of, members, added)


class Filling:
    """An enqueue that adds items to a group in their order, as `rota.map` does.

    The caller may repeat a call that got no reply. After that, `go_on` sends the items that follow those of this call.
    """

    def __init__(self, context: FlowContext, group_id: str, opening: Opening, go_on: GoOn = just_repeat) -> None:
        self.group_id = group_id
        self.cursor = 0  # The number of items that the server has accepted.
        # `is_new` means that this enqueue added items, or that the group is empty. `has_ended` means that the group
        # accepts no more items.
        self.is_new = self.has_ended = False
        self._opening = opening
        self._context = context
        # The position of the first item of this round, or None for the call that opens the group.
        self._first: int | None = 0
        self._last = -1  # The total number of items if this round sends the last ones, or else -1.
        self._sender = context.sender.of(self._packed, self._process_reply, go_on)

    def open(self) -> Sending[NewMember]:
        """Open the group if it does not exist, and read its cursor, the number of items that it has. Raises the errors
        of `Sender.send`."""
        self._first = None
        return self._sender.send_as_one(())

    def send(self, members: Sequence[NewMember], *, are_last: bool) -> Sending[NewMember]:
        """Send `members`, the calls for the next items of the group. The server already has the first `cursor` items,
        and these follow them.

        If `are_last` is true, the call that sends the last member also closes the group. Raises the errors of
        `Sender.send`.
        """
        self._first = self.cursor
        self._last = self.cursor + len(members) if are_last else -1
        return self._sender.send(members) if members else self._sender.send_as_one(members)

    def _packed(self, batch: Batch[NewMember]) -> ScriptCall[Added]:
        first = None if self._first is None else self._first + batch.at
        closes = first is not None and first + len(batch.items) == self._last
        return self._context.store.add_members(
            batch.nonce, batch.items, Into(self.group_id, self._opening, first, closes)
        )

    def _process_reply(self, members: Sequence[NewMember], added: Added) -> list[NewMember]:
        self.cursor = added.cursor
        self.has_ended = self.has_ended or added.status is AddStatus.ENDED
        if added.status is not AddStatus.OK:
            return []
        self.is_new = self.is_new or bool(members) or not added.cursor
        return self._context.handles(_member_of, members, added)


class GroupSending(Generic[H]):
    """An enqueue of a group whose members are all in memory."""

    def __init__(
        self,
        context: FlowContext,
        group_id: str,
        opening: Opening,
        members: Sequence[NewMember],
        handle_of: GroupHandleOf[H],
    ) -> None:
        self._filling = Filling(context, group_id, opening, self._go_on)
        self._members = members
        self._handle_of = handle_of
        self.expected = handle_of(group_id, duplicate=False)

    def send(self) -> Sending[H]:
        """Send the members that the server does not have yet.

        Raises the errors of `Sender.send`, with a note on how to continue, and GroupEnded if the group ended
        before it was complete.
        """
        return self._go_on(self._round())

    def _round(self) -> Sending[NewMember]:
        first = self._filling.cursor
        members = self._members[first : first + ROUND_MEMBERS]
        return self._filling.send(members, are_last=first + len(members) == len(self._members))

    def _go_on(self, sending: Sending[NewMember]) -> Sending[H]:
        filling = self._filling
        count = len(self._members)
        with noting_how_to_continue(filling, "enqueued"):
            yield from sending
            while not filling.has_ended and filling.cursor < count:
                yield from self._round()
        if filling.cursor < count:
            raise group_ended(filling.group_id, f"{filling.cursor:,} of {count:,} members were accepted")
        return [self._handle_of(filling.group_id, duplicate=not filling.is_new)]


def flow_of(
    what: CallChain | CallGroup,
    members: Sequence[NewMember],
    context: FlowContext,
    chain_handle: HandleOf[Any],
    group_handle: GroupHandleOf[Any],
) -> MembersSending[Any] | GroupSending[Any]:
    """Return the steps that enqueue a chain or a group. `members` are the checked members that `Checks.all_of` returned
    for this chain or group.

    Raises the errors of `Checks.opening`.
    """
    if isinstance(what, CallChain):
        return MembersSending(context, members, chain_handle)
    opening = context.checks.opening(what.then, what.on_dead)
    return GroupSending(context, what.id or fresh_id(), opening, members, group_handle)


def _member_of(member: NewMember, _reply: Enqueued) -> NewMember:
    return member


@contextmanager
def noting_how_to_continue(filling: Filling, done_again: str) -> Iterator[None]:
    """If the block raises an exception, add a note to it that explains how to continue with the same group."""
    try:
        yield
    except GroupEnded:
        raise
    # The note is also added to Ctrl-C and to errors of the iterator, because without it the caller may not know the
    # group's id.
    except BaseException as error:
        if filling.cursor or not isinstance(error, Unavailable):  # In all other cases, the group does not exist.
            error.add_note(
                f"group {filling.group_id} is incomplete, and has at least {filling.cursor:,} items: if the group is "
                f"{done_again} again with id={filling.group_id!r}, it continues exactly where it stopped"
            )
        raise


def ids_of(member: NewMember, reply: Enqueued) -> tuple[str, ...]:
    """Return the ids of the tasks of a member: of one call, or of all calls of a chain. If the first task is a
    duplicate, return only the id of the existing task."""
    if reply.duplicate:
        return (reply.holder or member.id,)
    return (member.id, *(task.id for task in followers_of(member.following)))


def group_ended(group_id: str, what: str) -> GroupEnded:
    """Return the error for a group that accepts no more members."""
    return GroupEnded(
        f"group {group_id} accepts no more members, because it has ended, was cancelled or never existed: {what}"
    )


MapSteps = Generator[Sending[NewMember] | GroupQuery, Room | None, None]
"""A generator that yields enqueues, which the driver sends, and queries, whose events the driver waits for. The driver
sends the reply to each query into the generator, and throws errors of enqueues into it."""
_TRIES: Final = 5  # How often one call is attempted. A new attempt is made only after the server has responded again.


class MapOptions(TypedDict, total=False):
    """The options of `rota.map`."""

    chunk: int  # How many items are sent at a time, 1 to 500. The default is 100.
    max_waiting: int  # How many unfinished tasks may exist at a time. The default is 1,000.
    id: str | None  # `id`, `then` and `on_dead` have the same meaning as in `rota.group`.
    then: Call[Any] | CallChain | None
    on_dead: Call[Any] | CallChain | None
    progress: ProgressOption  # Called after each chunk, as in `Client.enqueue_many`.


@dataclass(frozen=True, slots=True)
class MapPlan:
    """The checked options of `rota.map`, with their defaults. Raises TypeError, ValueError or InvalidName."""

    chunk: int = 100
    max_waiting: int = 1000
    id: str | None = None
    then: Call[Any] | CallChain | None = None
    on_dead: Call[Any] | CallChain | None = None
    progress: ProgressOption = None

    def __post_init__(self) -> None:
        for name, most in (("chunk", BATCH), ("max_waiting", sys.maxsize)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be {f'from 1 to {most}' if most == BATCH else '1 or more'}, got {value}")
        if self.max_waiting < self.chunk:
            raise ValueError(f"max_waiting ({self.max_waiting}) must be at least chunk ({self.chunk})")
        check_group(self.then, self.on_dead, self.id)


def plan_of(options: MapOptions) -> MapPlan:
    """Return the options of `map` with their defaults. Raises the errors of MapPlan, and TypeError for an unknown
    option."""
    if unknown := sorted(set(options) - set(MapOptions.__annotations__)):
        raise TypeError(fault_in_option(unknown[0], "rota.map", FOREIGN_NAMES["map"], MapOptions.__annotations__))
    return MapPlan(**options)


class Items:
    """The items of an iterable, each turned into a call by the function `call`. `position` is the number of items taken
    or skipped so far."""

    def __init__(self, call: Callable[[Any], Call[Any]], iterable: Iterable[Any], checks: Checks) -> None:
        self._call = call
        self._items = iter(iterable)
        self._checks = checks
        self.position = 0

    def skip_to(self, position: int) -> None:
        """Skip items that the server already has."""
        for _ in islice(self._items, max(0, position - self.position)):
            self.position += 1

    def take(self, count: int) -> list[NewMember]:
        """Return the next items as checked members, or an empty list if there are no more.

        Raises the errors of `prepare`, with the item's number.
        """
        members = []
        for item in islice(self._items, count):
            try:
                members.append(self._checks.member(self._call(item)))
            except (RotaError, TypeError, ValueError) as error:
                error.args = (f"items[{self.position + len(members)}]: {error}",)
                raise
        self.position += len(members)
        return members


def caller_of(task: Any) -> Callable[[Any], Call[Any]]:
    """Return the function that makes a call of the task from an item. Raises TypeError if `task` is not a task."""
    call: Callable[[Any], Call[Any]] | None = getattr(task, "call", None)
    if call is None or not callable(call):
        raise TypeError(f"rota.map{_why_no_task(task)}")
    return call


def _why_no_task(thing: Any) -> str:
    if name := thing.name if isinstance(thing, Call) else task_of_method(thing):
        options = f'rota.map({name}.using(queue="bulk"), items) to set options'
        return f" takes the task itself and creates the calls, for example rota.map({name}, items), or {options}"
    if isroutine(thing):
        return f": {thing.__name__} is not a task: declare it with @rota.task"
    return f" takes a declared task, for example rota.map(resize, items), got {thing!r}"


def count_of(iterable: Iterable[Any]) -> int | None:
    """Return the number of items, or None for an iterator, whose length is not known.

    Raises TypeError if `iterable` is not iterable.
    """
    if not isinstance(iterable, Iterable):
        raise TypeError(
            f"rota.map takes a task and its items, for example rota.map(resize, image_ids), got {iterable!r}"
        )
    return len(iterable) if isinstance(iterable, Sized) else None


def filled(filling: Filling, items: Items, plan: MapPlan, report: ReportProgress) -> MapSteps:
    """Open the group, add the items that it does not have yet, and close it.

    Before each chunk, this waits until the group has room for it. There is room if at most `max_waiting` members,
    including the chunk, are unfinished. Raises GroupEnded if there are more items, but the group accepts no more.
    """
    yield from _sent(filling, filling.open)
    items.skip_to(filling.cursor)
    if filling.has_ended and items.take(1):
        raise group_ended(filling.group_id, f"it accepted the first {filling.cursor:,} items, but there are more")
    if filling.has_ended:
        return
    report(filling.cursor)
    room = 0
    while members := items.take(plan.chunk):
        while members:
            if room < len(members):
                room = plan.max_waiting - (yield from _awaited(filling, plan.max_waiting - len(members)))
            room -= len(members)
            members = yield from _added(filling, items, members)
        report(filling.cursor)
    yield from _sent(filling, lambda: filling.send((), are_last=True))


def _sent(filling: Filling, sending: Callable[[], Sending[NewMember]]) -> Generator[Any, Any, None]:
    """Carry out the enqueue that `sending` returns.

    After a failure, wait until the server responds, then call `sending` again, for a limited number of attempts. Each
    enqueue that it returns has only the items that the server still lacks, which the group's cursor shows.
    """
    for left in reversed(range(_TRIES)):
        try:
            yield sending()
        except (Unavailable, Uncertain) as error:
            if not left or isinstance(error, Denied | ServerFull):
                raise
            yield GroupQuery(filling.group_id, sys.maxsize)
        else:
            return


def _awaited(filling: Filling, most_left: int) -> Generator[GroupQuery, Room | None, int]:
    """Wait until at most `most_left` members of the group have not ended, and return how many have not."""
    found = yield GroupQuery(filling.group_id, most_left)
    if found is None or found.left is None:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    return found.left


def _added(
    filling: Filling, items: Items, members: Sequence[NewMember]
) -> Generator[Sending[NewMember], Any, list[NewMember]]:
    """Send the members, and return those that the group still lacks.

    Usually it lacks none. It can lack some if another process fills the same group at the same time, and has moved the
    group's cursor.
    """
    first = filling.cursor
    yield from _sent(filling, lambda: filling.send(_left(filling, members, first), are_last=False))
    if filling.has_ended:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    items.skip_to(filling.cursor)
    return _left(filling, members, first)


def _left(filling: Filling, members: Sequence[NewMember], first: int) -> list[NewMember]:
    """Return those members whose items come after the group's cursor, so that the group still lacks them.

    `first` is the position of the first member's item. Raises Uncertain if the group lacks earlier items too. This
    happens if the server was replaced by one that had not received those items.
    """
    if filling.cursor < first:
        raise Uncertain(
            f"the server has lost the items from {filling.cursor:,} to {first - 1:,} of group {filling.group_id}"
        )
    return list(members[filling.cursor - first :])
