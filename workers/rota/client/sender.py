"""The steps that send enqueued tasks in rounds of bounded size. Each call counts exactly once, because it has a nonce.

This module does no I/O. A `Sending` yields the steps, and a driver, either blocking or for asyncio, carries them out
over its connections.

The server remembers a nonce for 60 s. Within that time, it replies from memory to a call that is sent again, even if
its tasks have ended in the meantime. After that time, the call would count as a new one.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, NewType, Protocol, TypeVar

from rota.client.command_replies import (
    WHOLE,
    Exchange,
    NotAccepted,
    NotConfirmed,
    NotReplied,
    Replied,
    Reply,
    Uncertain,
)
from rota.client.enqueue_options import Interceptor
from rota.errors import Unavailable
from rota.protocol.scripts import ScriptCall
from rota.server.session import Confirmation


class WithId(Protocol):
    """A result of an enqueue that a caller gets, for example a handle."""

    @property
    def id(self) -> str: ...


class Sent(WithId, Protocol):
    """An item to send: a task, or a task with the tasks that follow it. `size` is its approximate number of bytes."""

    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sent)
V = TypeVar("V")
H = TypeVar("H", bound=WithId)
S2 = TypeVar("S2", bound=Sent)
V2 = TypeVar("V2")
H2 = TypeVar("H2", bound=WithId)
T = TypeVar("T")

# Less than the 60 s for which the server remembers a nonce, because the repeated call takes time to arrive.
REPEAT_SECONDS: Final = 50.0
# The script takes half a millisecond for a batch of this size. Meanwhile, the client packs the next batch.
_BATCH_TASKS: Final = 125
_BATCH_BYTES: Final = 1 << 20  # Limited, because the server does nothing else while it reads a batch.
_ROUND_BATCHES: Final = 32
_ROUND_BYTES: Final = 4 << 20  # The maximum size of a round, which must be sent before the first replies are due.
# The part of the timeout in which the first replies must come. The rest is for a second try on another connection.
_FIRST_SHARE: Final = 0.5
_PERHAPS: Final = "the tasks may have been accepted"

Sending = Generator[Exchange[Any], list[Reply[Any]], list[H]]
"""A generator that yields exchanges, receives the replies to them, and returns the handles. The driver throws
Unavailable into the generator if nothing was sent, and Cut if the caller no longer waits."""


GoOn = Callable[["Sending[Any]"], "Sending[Any]"]
"""A function that takes the `Sending` that repeats a call, runs it, and then runs the rest of the enqueue."""


def just_repeat(repeated: "Sending[Any]") -> "Sending[Any]":
    """Return `repeated`, the steps that repeat a call, unchanged. This is the `GoOn` of an enqueue that has nothing
    more to send after the repeated call. Any other `GoOn` adds the steps that send the rest."""
    return repeated


class Cut(Exception):
    """Raised inside a `Sending`, the generator of an enqueue, if the caller no longer waits for the replies to an
    exchange."""

    def __init__(self, *, is_sent: bool) -> None:
        super().__init__()
        self.is_sent = is_sent


Nonce = NewType("Nonce", str)
"""The text `NAME NUMBER` that identifies a call to the server if it is sent again."""


class Batch(NamedTuple, Generic[S]):
    """The items that one call sends, with its nonce."""

    items: Sequence[S]
    at: int  # The number of items in the batches before this one.
    nonce: Nonce


Pieces = Sequence[tuple[Sequence[S], int]]
"""The items of each call of one round, and how many items are sent before that call. Nonces are taken only when the
round is sent, so that an enqueue of many rounds takes few nonces."""


class Nonces:
    """A source of nonces, by which the server recognizes a call that is sent again. A nonce consists of a name and a
    number. The source is thread-safe, and a forked child uses names of its own.

    If a call got a reply, the next call uses the same name and the next number, so that the server keeps only one
    record for all these calls. If a call got no reply, its name is never used again, because the call may be repeated,
    and a copy of it may arrive late.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._next: list[Nonce] = []

    def take(self) -> Nonce:
        """Return the nonce for the next call."""
        if self._pid != os.getpid():
            # The list is replaced before the pid, so that no other thread sees the new pid with the parent's names.
            self._next = []
            self._pid = os.getpid()
        try:
            return self._next.pop()
        except IndexError:
            return Nonce(f"{os.urandom(16).hex()} 1")

    def mark_replied(self, nonce: Nonce) -> None:
        """Record that the call got a reply when it was first sent. The call will not be repeated, so the name in its
        nonce can be used again."""
        name, _, number = nonce.partition(" ")
        self._next.append(Nonce(f"{name} {int(number) + 1}"))


class Sender(Generic[S, V, H]):
    """The sender of one kind of enqueue.

    If the durability needs a confirmation by the server, each round waits for a separate confirmation. Two rounds may
    go to different servers, for example after a failover, and a single confirmation would cover only the second server.
    """

    def __init__(
        self,
        pack: Callable[[Batch[S]], ScriptCall[V]],
        handles_of: Callable[[Sequence[S], V], list[H]],
        doubt: "Callable[[str, Sequence[str], Callable[[], Sending[Any]]], Uncertain]",
        seconds: float,
        confirmation: Confirmation | None = None,
        *,
        repeats: str = "repeat()",
    ) -> None:
        self._pack = pack  # A function that makes the command for a batch.
        self._repeats = repeats  # The code that error messages suggest for repeating an enqueue.
        self._handles_of = handles_of  # A function that makes the handles of a batch from its reply.
        self._doubt = doubt  # A function that makes an Uncertain with which the enqueue can be repeated.
        self._seconds = seconds  # The timeout of a round, including the second try.
        self._confirmation = confirmation
        self._nonces = Nonces()

    def of(
        self,
        pack: Callable[[Batch[S2]], ScriptCall[V2]],
        handles_of: Callable[[Sequence[S2], V2], list[H2]],
        go_on: GoOn = just_repeat,
    ) -> "Sender[S2, V2, H2]":
        """Return a sender for another kind of item, with the same settings.

        `pack` makes the command for a batch of these items, and `handles_of` makes their handles from its reply.
        `go_on` sends the rest of an enqueue after one of its calls was repeated.
        """

        def doubt(why: str, ids: Sequence[str], again: Callable[[], Sending[Any]]) -> Uncertain:
            return self._doubt(why, ids, lambda: go_on(again()))

        made = Sender(pack, handles_of, doubt, self._seconds, self._confirmation, repeats=self._repeats)
        # The new sender shares the nonces, so the server keeps only one record, no matter how many chains and groups
        # are sent.
        made._nonces = self._nonces
        return made

    def send(self, items: Sequence[S], progress: Callable[[int], object] | None = None) -> Sending[H]:
        """Send tasks in order, round by round. Calls of a round that got no reply are sent a second time.

        After each round, `progress` is called with the number of tasks accepted so far. Raises Unavailable, ServerFull
        or Uncertain. The rounds after the failed round are not sent.
        """
        rounds = _rounds(items)
        if len(rounds) == 1 and progress is None:
            return self._send_round(rounds[0])
        return self._send_rounds(rounds, progress)

    def send_as_one(self, items: Sequence[S]) -> Sending[H]:
        """Send the items in one call, even if there are none. One call of the script must be able to accept all
        items."""
        return self._send_round([(items, 0)])

    def _send_rounds(self, rounds: Sequence[Pieces[S]], progress: Callable[[int], object] | None) -> Sending[H]:
        handles: list[H] = []
        for some in rounds:
            try:
                handles += yield from self._send_round(some)
            except (Unavailable, Uncertain) as error:
                error.accepted = (*(handle.id for handle in handles), *error.accepted)
                raise
            if progress is not None:
                progress(len(handles))
        return handles

    def _send_round(self, some: Pieces[S]) -> Sending[H]:
        batches = [Batch(items, at, self._nonces.take()) for items, at in some]
        sent_at = time.monotonic()
        # A confirmation can take a long time, so the wait for it may use the whole timeout. The round is then sent
        # again only if the connection is lost.
        share = _FIRST_SHARE if self._confirmation is None else WHOLE
        try:
            replies = yield self._exchange(batches, sent_at + self._seconds, share)
            without_reply = [n for n, reply in enumerate(replies) if isinstance(reply, NotReplied)]
            if all(isinstance(reply, Replied) for reply in replies):
                for batch in batches:
                    self._nonces.mark_replied(batch.nonce)
            if without_reply and self._may_repeat(sent_at):
                repeated = yield from self._again([batches[n] for n in without_reply], sent_at + self._seconds)
                for n, reply in zip(without_reply, repeated, strict=True):
                    # If the second try failed too, report the failure of the first try, which is more informative.
                    if isinstance(reply, Replied | NotConfirmed):
                        replies[n] = reply
        except Cut as cut:
            raise self._cut(cut, batches, sent_at) from None
        return self._handles(batches, replies, sent_at)

    def _may_repeat(self, sent_at: float) -> bool:
        return _is_remembered(sent_at) and time.monotonic() < sent_at + self._seconds

    def _exchange(self, batches: Sequence[Batch[S]], deadline: float, share: float = WHOLE) -> Exchange[V]:
        # Each command is packed only when it is sent, so the server works on one command while the client packs the
        # next.
        commands = map(self._pack, batches)
        return Exchange(commands, self._confirmation, deadline, share)

    def _again(
        self, batches: Sequence[Batch[S]], deadline: float
    ) -> Generator[Exchange[Any], list[Reply[Any]], list[Reply[V]]]:
        # Even if the second try is refused or cannot be sent, the first try may have been accepted. So the outcome is
        # still NotReplied.
        try:
            replies = yield self._exchange(batches, deadline)
        except Unavailable as error:
            return [NotReplied(str(error)) for _ in batches]
        except Cut:
            raise Cut(is_sent=True) from None  # Even if the second try was not sent, the first one was.
        return [NotReplied(str(reply.error)) if isinstance(reply, NotAccepted) else reply for reply in replies]

    def _handles(self, batches: Sequence[Batch[S]], replies: Sequence[Reply[V]], sent_at: float) -> list[H]:
        # Raises an error if a batch was not accepted. If one batch is in doubt and another was refused, Uncertain is
        # raised.
        handles: list[H] = []
        refused: list[Unavailable] = []
        doubts: list[tuple[Batch[S], str]] = []
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, Replied):
                handles += self._handles_of(batch.items, reply.value)
            elif isinstance(reply, NotAccepted):
                refused.append(reply.error)
            else:
                doubts.append((batch, reply.why if isinstance(reply, NotConfirmed) else f"{reply.why}; {_PERHAPS}"))
        if not doubts and not refused:
            return handles
        failure = self._uncertain(doubts[0][1], [batch for batch, _ in doubts], sent_at) if doubts else refused[0]
        failure.accepted = tuple(handle.id for handle in handles)
        raise failure

    def _cut(self, cut: Cut, batches: Sequence[Batch[S]], sent_at: float) -> Unavailable | Uncertain:
        if cut.is_sent:
            return self._uncertain(f"the await was cancelled; {_PERHAPS}", batches, sent_at)
        return Unavailable("the await was cancelled before any task was sent")

    def _uncertain(self, why: str, batches: Sequence[Batch[S]], sent_at: float) -> Uncertain:
        ids = [item.id for batch in batches for item in batch.items]
        how = (
            f"{self._repeats} on this error sends exactly the same tasks again, up to {REPEAT_SECONDS:g} s after "
            "the first time"
        )
        return self._doubt(f"{why}: {how}", ids, partial(self._repeat, batches, sent_at))

    def _repeat(self, batches: Sequence[Batch[S]], sent_at: float) -> Sending[H]:
        if not _is_remembered(sent_at):
            raise self._uncertain(f"it is too late to repeat the enqueue; {_PERHAPS}", batches, sent_at)
        try:
            replies = yield from self._again(batches, time.monotonic() + self._seconds)
        except Cut as cut:
            raise self._cut(cut, batches, sent_at) from None
        return self._handles(batches, replies, sent_at)


def intercepted(interceptor: Interceptor, namespace: str, sending: Sending[H]) -> list[H]:
    """Run an enqueue with the replies of a stand-in instead of a server. Raises the same errors as an enqueue with
    these replies from a server."""
    replies: list[Any] = []
    try:
        exchange = next(sending)
        while True:
            replies = [Replied(interceptor.run(namespace, command)) for command in exchange.commands]
            exchange = sending.send(replies)
    except StopIteration as end:
        handles: list[H] = end.value
        return handles


def _rounds(items: Sequence[S]) -> Sequence[Pieces[S]]:
    if len(items) == 1:
        return [[(items, 0)]]
    batches: list[tuple[Sequence[S], int]] = []
    at = 0
    for some in _split(items, [item.size for item in items], _BATCH_TASKS, _BATCH_BYTES):
        batches.append((some, at))
        at += len(some)
    if len(batches) == 1:
        return [batches]
    sizes = [sum([item.size for item in some]) for some, _ in batches]
    return _split(batches, sizes, _ROUND_BATCHES, _ROUND_BYTES)


def _is_remembered(sent_at: float) -> bool:
    return time.monotonic() - sent_at < REPEAT_SECONDS


def _split(things: Sequence[T], sizes: Sequence[int], most: int, most_bytes: int) -> list[Sequence[T]]:
    # Splits the items into runs of at most `most` items and `most_bytes` bytes. An item larger than `most_bytes`
    # becomes a run of its own.
    if len(things) == 1 or (len(things) <= most and sum(sizes) <= most_bytes):
        return [things] if things else []
    runs = []
    start = total = 0
    for at, size in enumerate(sizes):
        total += size
        if at > start and (at - start == most or total > most_bytes):
            runs.append(things[start:at])
            start = at
            total = size
    return [*runs, things[start:]]
