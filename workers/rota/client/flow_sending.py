"""Chains and groups on their way: what an enqueue sends, and goes on with. No I/O, as `rota.client.sender`.

A group of many members is sent in several calls. Its record on the server counts the items that were accepted, its
cursor, in the same step with them: whoever sends the same group again goes on exactly there. `rota.map` fills a group
from an iterator in that way, as room comes.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isroutine
from itertools import islice
from typing import Any, Final, Generic, TypedDict, TypeVar

from rota.client.answers import ClientWarnings, Denied, Uncertain
from rota.client.enqueue_options import ProgressOption, Tell
from rota.client.preparation import Checks, check_group, fresh_id
from rota.client.sender import Batch, GoOn, Sender, Sending, WithId, just_repeat
from rota.client.waits import GroupQuestion
from rota.errors import GroupEnded, RotaError, ServerFull, Unavailable
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.protocol.command import Command
from rota.protocol.groups import Added, AddWord, Into, Opening, Room
from rota.protocol.new_tasks import Enqueued, NewMember, followers_of
from rota.protocol.store import BATCH, Store
from rota.tasks.call import Call, CallChain, CallGroup, task_of_method

PORTION: Final = 4_000  # members, after which it is looked at how many were accepted: a round of the sender

H = TypeVar("H", bound=WithId)
T = TypeVar("T", bound=WithId)
HandleOf = Callable[[NewMember, Enqueued], H]
"""What callers get of a task, or of a chain, and the server's word about it."""


@dataclass(frozen=True, slots=True)
class FlowTerms:
    """How a client checks calls, and sends: by its `sender`, of which others are made."""

    store: Store
    checks: Checks
    sender: Sender[Any, Any, Any]
    warned: ClientWarnings

    def handles(self, handle_of: HandleOf[T], members: Sequence[NewMember], added: Added) -> list[T]:
        """What callers get of each, and a warning where no fleet serves them."""
        for member, word in zip(members, added.enqueued, strict=True):
            self.warned.of_answer(member.task, word)
        return [handle_of(member, word) for member, word in zip(members, added.enqueued, strict=True)]


class MembersSending(Generic[H]):
    """A chain on its way, or more members for a group that is there."""

    def __init__(
        self, terms: FlowTerms, members: Sequence[NewMember], handle_of: HandleOf[H], group_id: str = ""
    ) -> None:
        self._terms = terms
        self._group_id = group_id
        self._members = members
        self._handle_of = handle_of
        self._has_ended = False
        self._added = 0
        into = Into(group_id)
        self._sender: Sender[NewMember, Added, H] = terms.sender.of(
            lambda batch: terms.store.add_members(batch.nonce, batch.items, into), self._told, self._checked
        )

    @property
    def expected(self) -> H:
        """The handle of a caller that does not wait for the answer."""
        return self._handle_of(self._members[0], Enqueued())

    def send(self) -> Sending[H]:
        """Send them. Raises as `Sender.send`, and GroupEnded."""
        return self._checked(self._sender.send(self._members))

    def _checked(self, sending: Sending[H]) -> Sending[H]:
        handles = yield from sending
        if self._has_ended:
            raise group_ended(self._group_id, f"{self._added:,} of {len(self._members):,} were added")
        return handles

    def _told(self, members: Sequence[NewMember], added: Added) -> list[H]:
        if added.word is AddWord.ENDED:
            self._has_ended = True
            return []
        self._added += len(members)
        return self._terms.handles(self._handle_of, members, added)


class Filling:
    """Items on their way into a group. `cursor`: how many the server has accepted; `is_new`: some by this filling, or
    there are none; `has_ended`: the group takes no more. `go_on`: what follows when what is in doubt was repeated."""

    def __init__(self, terms: FlowTerms, group_id: str, opening: Opening, go_on: GoOn = just_repeat) -> None:
        self.group_id = group_id
        self.cursor = 0
        self.is_new = self.has_ended = False
        self._opening = opening
        self._terms = terms
        self._begin: int | None = 0
        self._last = -1
        self._sender = terms.sender.of(self._packed, self._told, go_on)

    def open(self) -> Sending[NewMember]:
        """Open the group if it is not there, and learn its cursor. Raises as `Sender.send`."""
        self._begin = None
        return self._sender.send_as_one(())

    def send(self, members: Sequence[NewMember], *, are_last: bool) -> Sending[NewMember]:
        """Send those items that stand from the cursor on; the group is closed with them if they `are_last`. What was
        accepted before, `cursor` says. Raises as `Sender.send`."""
        self._begin = self.cursor
        self._last = self.cursor + len(members) if are_last else -1
        return self._sender.send(members) if members else self._sender.send_as_one(members)

    def _packed(self, batch: Batch[NewMember]) -> Command[Added]:
        begin = None if self._begin is None else self._begin + batch.at
        closes = begin is not None and begin + len(batch.items) == self._last
        return self._terms.store.add_members(
            batch.nonce, batch.items, Into(self.group_id, self._opening, begin, closes)
        )

    def _told(self, members: Sequence[NewMember], added: Added) -> list[NewMember]:
        self.cursor = added.cursor
        self.has_ended = self.has_ended or added.word is AddWord.ENDED
        if added.word is not AddWord.OK:
            return []
        self.is_new = self.is_new or bool(members) or not added.cursor
        return self._terms.handles(_member_of, members, added)


class GroupSending(Generic[H]):
    """A group on its way, whose members are all there."""

    def __init__(
        self,
        terms: FlowTerms,
        group_id: str,
        opening: Opening,
        members: Sequence[NewMember],
        handle_of: Callable[[str, bool], H],
    ) -> None:
        self._filling = Filling(terms, group_id, opening, self._go_on)
        self._members = members
        self._handle_of = handle_of
        self.expected = handle_of(group_id, False)

    def send(self) -> Sending[H]:
        """Send what the server does not have yet. Raises as `Sender.send`, with a note that says how to go on; and
        GroupEnded when it ended before all were there."""
        return self._go_on(self._portion())

    def _portion(self) -> Sending[NewMember]:
        begin = self._filling.cursor
        portion = self._members[begin : begin + PORTION]
        return self._filling.send(portion, are_last=begin + len(portion) == len(self._members))

    def _go_on(self, sending: Sending[NewMember]) -> Sending[H]:
        filling, count = self._filling, len(self._members)
        with going_on(filling, "enqueued"):
            yield from sending
            while not filling.has_ended and filling.cursor < count:
                yield from self._portion()
        if filling.cursor < count:
            raise group_ended(filling.group_id, f"{filling.cursor:,} of {count:,} members were accepted")
        return [self._handle_of(filling.group_id, not filling.is_new)]


def flow_of(
    what: CallChain | CallGroup,
    members: Sequence[NewMember],
    terms: FlowTerms,
    chain_handle: HandleOf[Any],
    group_handle: Callable[[str, bool], Any],
) -> MembersSending[Any] | GroupSending[Any]:
    """A chain or a group on its way, of which `Checks.all_of` made these. Raises as `Checks.opening`."""
    if isinstance(what, CallChain):
        return MembersSending(terms, members, chain_handle)
    opening = terms.checks.opening(what.then, what.on_dead)
    return GroupSending(terms, what.id or fresh_id(), opening, members, group_handle)


def _member_of(member: NewMember, _word: Enqueued) -> NewMember:
    return member


@contextmanager
def going_on(filling: Filling, done_again: str) -> Iterator[None]:
    """Note at what is raised how the same group goes on."""
    try:
        yield
    except GroupEnded:
        raise
    except BaseException as error:  # also Ctrl-C, and whatever an iterator raises: nobody else knows an id of our own
        if filling.cursor or not isinstance(error, Unavailable):  # else it is not there
            error.add_note(
                f"group {filling.group_id} has {filling.cursor:,} items for certain, and is not complete: {done_again} "
                f"again with id={filling.group_id!r} it goes on exactly where it is"
            )
        raise


def ids_of(member: NewMember, word: Enqueued) -> tuple[str, ...]:
    """The ids of a chain's tasks; of one that was not accepted the id that stays."""
    if word.duplicate:
        return (word.holder or member.id,)
    return (member.id, *(task.id for task in followers_of(member.following)))


def group_ended(group_id: str, what: str) -> GroupEnded:
    """It takes no more members."""
    return GroupEnded(f"group {group_id} has ended, was cancelled, or never was, and takes no more members: {what}")


MapSteps = Generator[Sending[NewMember] | GroupQuestion, Room | None, None]
"""What is to be sent, or waited for, whose answer it is sent; it is thrown what sending raises."""
_TRIES: Final = 5  # at a server that answers between them


class MapOptions(TypedDict, total=False):
    """How items are enqueued: `chunk` of them at once (1 to 500), at most `max_waiting` that have not ended.

    `id`, `then` and `on_dead` as of `rota.group`; `progress` as of `enqueue_many`.
    """

    chunk: int
    max_waiting: int
    id: str | None
    then: Call[Any] | CallChain | None
    on_dead: Call[Any] | CallChain | None
    progress: ProgressOption


@dataclass(frozen=True, slots=True)
class MapPlan:
    """`MapOptions` with their defaults, checked. Raises TypeError, ValueError or InvalidName."""

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
            raise ValueError(f"max_waiting ({self.max_waiting}) must be at least a chunk ({self.chunk})")
        check_group(self.then, self.on_dead, self.id)


def plan_of(options: MapOptions) -> MapPlan:
    """What `map` was given besides its items. Raises as MapPlan, and TypeError for an option that there is not."""
    if unknown := sorted(set(options) - set(MapOptions.__annotations__)):
        raise TypeError(fault_in_option(unknown[0], "rota.map", FOREIGN_NAMES["map"], MapOptions.__annotations__))
    return MapPlan(**options)


class Items:
    """The items of an iterable, each as the call that `call` makes of it; `position` is the number of the next one."""

    def __init__(self, call: Callable[[Any], Call[Any]], iterable: Iterable[Any], checks: Checks) -> None:
        self._call = call
        self._items = iter(iterable)
        self._checks = checks
        self.position = 0

    def skip_to(self, position: int) -> None:
        """Pass over those that the server has."""
        for _ in islice(self._items, max(0, position - self.position)):
            self.position += 1

    def take(self, count: int) -> list[NewMember]:
        """The next ones, checked; none when there are no more. Raises as `prepare`, with the number of the item."""
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
    """What makes a call of an item. Raises TypeError for what is no task."""
    call: Callable[[Any], Call[Any]] | None = getattr(task, "call", None)
    if call is None or not callable(call):
        raise TypeError(f"rota.map{_why_no_task(task)}")
    return call


def _why_no_task(thing: Any) -> str:
    if name := thing.name if isinstance(thing, Call) else task_of_method(thing):
        options = f'with options rota.map({name}.using(queue="bulk"), items)'
        return f" takes the task itself, as rota.map({name}, items): it makes the calls; {options}"
    if isroutine(thing):
        return f": {thing.__name__} is not a task: declare it with @rota.task"
    return f" takes a declared task, as rota.map(resize, items), got {thing!r}"


def count_of(iterable: Iterable[Any]) -> int | None:
    """How many items there are, None for an iterator, which does not say. Raises TypeError for what gives no items."""
    if not isinstance(iterable, Iterable):
        raise TypeError(f"rota.map takes a task and its items, as rota.map(resize, image_ids), got {iterable!r}")
    return len(iterable) if isinstance(iterable, Sized) else None


def filled(filling: Filling, items: Items, plan: MapPlan, tell: Tell) -> MapSteps:
    """Open the group, add items as room comes, from where it was left, and close it. Raises GroupEnded when it takes no
    more, and there are more."""
    yield from _sent(filling, filling.open)
    items.skip_to(filling.cursor)
    if filling.has_ended and items.take(1):
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted, and there are more")
    if filling.has_ended:
        return
    tell(filling.cursor)
    room = 0
    while members := items.take(plan.chunk):
        while members:
            if room < len(members):
                room = plan.max_waiting - (yield from _awaited(filling, plan.max_waiting - len(members)))
            room -= len(members)
            members = yield from _added(filling, items, members)
        tell(filling.cursor)
    yield from _sent(filling, lambda: filling.send((), are_last=True))


def _sent(filling: Filling, sending: Callable[[], Sending[NewMember]]) -> Generator[Any, Any, None]:
    """Send; what failed is sent again when the server answers: the cursor says what counted."""
    for left in reversed(range(_TRIES)):
        asked = sending()
        try:
            yield asked
        except (Unavailable, Uncertain) as error:
            if not left or isinstance(error, Denied | ServerFull):
                raise
            yield GroupQuestion(filling.group_id, sys.maxsize)
        else:
            return


def _awaited(filling: Filling, most_left: int) -> Generator[GroupQuestion, Room | None, int]:
    """Wait until no more members have not ended; returns how many that are."""
    found = yield GroupQuestion(filling.group_id, most_left)
    if found is None or found.left is None:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    return found.left


def _added(
    filling: Filling, items: Items, members: Sequence[NewMember]
) -> Generator[Sending[NewMember], Any, list[NewMember]]:
    """Send members; returns those that were not accepted, as somebody else has moved the cursor."""
    begin = filling.cursor
    yield from _sent(filling, lambda: filling.send(_left(filling, members, begin), are_last=False))
    if filling.has_ended:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    items.skip_to(filling.cursor)
    return _left(filling, members, begin)


def _left(filling: Filling, members: Sequence[NewMember], begin: int) -> list[NewMember]:
    """Which of these, whose first is the item `begin`, stand behind the cursor. Raises Uncertain when those before are
    gone: a server that took over did not have them."""
    if filling.cursor < begin:
        raise Uncertain(f"the server has lost items {filling.cursor:,} to {begin - 1:,} of group {filling.group_id}")
    return list(members[filling.cursor - begin :])
