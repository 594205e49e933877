"""Chains and groups on their way: what an enqueue sends, and goes on with. No I/O, as `rota.client.sender`.

A group of many members is sent in several calls. Its record on the server counts the items that were accepted, its
cursor, in the same step with them: whoever sends the same group again goes on exactly there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rota.client.client_warnings import ClientWarnings
from rota.client.preparation import fresh_id, prepare, prepare_each
from rota.client.sender import Batch, GoOn, Sender, Sending, WithId, just_repeat
from rota.errors import GroupEnded, RotaError, Unavailable
from rota.protocol.command import Command
from rota.protocol.groups import Added, AddWord, Into, Opening
from rota.protocol.new_tasks import Enqueued, NewMember, NewTask, follow_text, followers_of
from rota.protocol.store import Store
from rota.tasks.call import Call, why_no_call
from rota.tasks.call_flows import CallChain, CallGroup
from rota.tasks.registry import Registry, default_registry

PORTION: Final = 4_000  # members, after which it is looked at how many were accepted: a round of the sender

H = TypeVar("H", bound=WithId)
T = TypeVar("T", bound=WithId)
HandleOf = Callable[[NewMember, Enqueued], H]
"""What callers get of a task, or of a chain, and the server's word about it."""


# Checked before anything is sent


class PreparedGroup(NamedTuple):
    """A group that was checked."""

    id: str
    opening: Opening
    members: Sequence[NewMember]


@dataclass(frozen=True, slots=True)
class Checks:
    """By what calls are checked."""

    registry: Registry
    max_payload_kb: int

    def member(self, member: Call[Any] | CallChain) -> NewMember:
        """A call, or a chain, as it is sent. Raises as `prepare`; of a chain with the number of the call."""
        first, *rest = self._tasks(member)
        return NewMember(first, follow_text(rest))

    def _tasks(self, member: Call[Any] | CallChain) -> Iterable[NewTask]:
        if isinstance(member, CallChain):
            return prepare_each(member.calls, self.registry, self.max_payload_kb)
        return [prepare(member, self.registry, self.max_payload_kb)]

    def members(self, members: Sequence[Call[Any] | CallChain]) -> Iterator[NewMember]:
        """Members of a group. Raises as `member`, with the number of the one that is at fault."""
        for at, member in enumerate(members):
            try:
                yield self.member(member)
            except (RotaError, TypeError, ValueError) as error:
                error.args = (f"members[{at}]: {error}",)
                raise

    def all_of(self, what: Any) -> Iterator[NewMember]:
        """A chain, or the members of a group. Raises as `members`, and TypeError for what is neither."""
        if isinstance(what, CallChain):
            return iter([self.member(what)])
        if isinstance(what, CallGroup):
            return self.members(what.members)
        raise TypeError(why_no_call(what))

    def opening(self, then: Call[Any] | CallChain | None, on_dead: Call[Any] | CallChain | None) -> Opening:
        """What may follow a group. Raises as `prepare`, and says of which it is the fault."""
        return Opening(*(self._last(word, last) for word, last in (("then", then), ("on_dead", on_dead))))

    def _last(self, word: str, last: Call[Any] | CallChain | None) -> bytes:
        if last is None:
            return b""
        try:
            return follow_text(self._tasks(last))
        except (RotaError, TypeError, ValueError) as error:
            error.args = (f"{word}: {error}",)
            raise


# Sent


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
            self.warned.note(member.task)
            if word.unserved or word.unseen:
                self.warned.of_answer(member.task, word)
        return [handle_of(member, word) for member, word in zip(members, added.enqueued, strict=True)]


def terms_of(store: Store, sender: Sender[Any, Any, Any], max_payload_kb: int, warned: ClientWarnings) -> FlowTerms:
    """Those of a client."""
    return FlowTerms(store, Checks(default_registry, max_payload_kb), sender, warned)


class FlowSending(Protocol[H]):
    """What is sent for one enqueue. `expected`: what callers get who do not wait for its answer."""

    expected: H

    def send(self) -> Sending[H]:
        """Send it, or what is left of it. Raises as `Sender.send`."""


class ChainSending(Generic[H]):
    """A chain on its way."""

    def __init__(self, terms: FlowTerms, member: NewMember, handle_of: HandleOf[H]) -> None:
        self._member = member
        self.expected = handle_of(member, Enqueued())
        self._sender: Sender[NewMember, Added, H] = terms.sender.of(
            lambda batch: terms.store.add_members(batch.nonce, batch.items),
            lambda members, added: terms.handles(handle_of, members, added),
        )

    def send(self) -> Sending[H]:
        """Send it. Raises as `Sender.send`."""
        return self._sender.send([self._member])


class AddSending(Generic[H]):
    """More members for a group that is there."""

    def __init__(self, terms: FlowTerms, group_id: str, members: Sequence[NewMember], handle_of: HandleOf[H]) -> None:
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

    def __init__(self, terms: FlowTerms, group: PreparedGroup, handle_of: Callable[[str, bool], H]) -> None:
        self._filling = Filling(terms, group.id, group.opening, self._go_on)
        self._members = group.members
        self._handle_of = handle_of
        self.expected = handle_of(group.id, False)

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
) -> FlowSending[Any]:
    """A chain or a group on its way, of which `Checks.all_of` made these. Raises as `Checks.opening`."""
    if isinstance(what, CallChain):
        return ChainSending(terms, members[0], chain_handle)
    group = PreparedGroup(what.id or fresh_id(), terms.checks.opening(what.then, what.on_dead), members)
    return GroupSending(terms, group, group_handle)


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
