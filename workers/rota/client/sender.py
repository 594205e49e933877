"""Enqueues on their way: in rounds of bounded size, each call exact by its nonce. No I/O: whoever has connections, that
block or not, drives the `Sending`.

The server remembers a nonce for 60 s. A call sent again within that time is answered from memory, even when
its tasks have ended meanwhile; later it would be a new call.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rota.client.answers import WHOLE, Answer, Answered, Exchange, NotAccepted, Unanswered, Uncertain, Unconfirmed
from rota.client.enqueue_options import Interceptor
from rota.errors import Unavailable
from rota.protocol.command import Command
from rota.server.session import Confirmation


class WithId(Protocol):
    """What has an id: what callers get."""

    @property
    def id(self) -> str: ...


class Sent(WithId, Protocol):
    """What can be sent: a task, or one with what follows it. `size`: about how many bytes it takes."""

    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sent)
V = TypeVar("V")
H = TypeVar("H", bound=WithId)
S2 = TypeVar("S2", bound=Sent)
V2 = TypeVar("V2")
H2 = TypeVar("H2", bound=WithId)
T = TypeVar("T")

REPEAT_SECONDS: Final = 50.0  # of the server's 60; the rest is for the way there
_BATCH_TASKS: Final = 125  # a script of half a millisecond, while the next batch is packed
_BATCH_BYTES: Final = 1 << 20  # a server does nothing else while it takes one in
_ROUND_BATCHES: Final = 32
_ROUND_BYTES: Final = 4 << 20  # what may be on its way without an answer, under one timeout
_FIRST_SHARE: Final = 0.5  # of the time for an answer: the rest is for the same once more, on another connection
_PERHAPS: Final = "the tasks may have been accepted"

Sending = Generator[Exchange[Any], list[Answer[Any]], list[H]]
"""Exchanges, one after the other: it is sent their answers, or thrown Unavailable when nothing was sent, or Cut when
nobody waits any more. Returns the handles."""


GoOn = Callable[["Sending[Any]"], "Sending[Any]"]
"""Takes the repetition of what is in doubt; does that, and what follows."""


def just_repeat(repeated: "Sending[Any]") -> "Sending[Any]":
    """Nothing follows."""
    return repeated


class Cut(Exception):
    """Nobody waits for the answers of an exchange any more."""

    def __init__(self, *, is_sent: bool) -> None:
        super().__init__()
        self.is_sent = is_sent


class Batch(NamedTuple, Generic[S]):
    """What is sent by one call, and its nonce. `at`: how many are sent before it."""

    items: Sequence[S]
    at: int
    nonce: str


Pieces = Sequence[tuple[Sequence[S], int]]
"""Of one round: what goes into each call, and how many are sent before it. Nonces are taken when the round is sent, so
that a call of many rounds takes few."""


class Nonces:
    """Gives each call a nonce, `NAME NUMBER`. After a call that was answered the next one has the same name and the
    next number, so that the server keeps one record for it, and not one for each call. The name of any other call is
    never used again: it may be repeated, and a copy of it may arrive late. Thread-safe; a forked child has names of its
    own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._next: list[str] = []

    def take(self) -> str:
        """One for a call."""
        if self._pid != os.getpid():
            self._next, self._pid = [], os.getpid()  # in this order: another thread may come in between
        try:
            return self._next.pop()
        except IndexError:
            return f"{os.urandom(16).hex()} 1"

    def was_answered(self, nonce: str) -> None:
        """Take note that the call was answered the first time it was sent, and will not be repeated."""
        name, _, number = nonce.partition(" ")
        self._next.append(f"{name} {int(number) + 1}")


class Sender(Generic[S, V, H]):
    """How enqueues are sent; `pack` makes the command of each batch, `told` what callers get of its answer, and `doubt`
    the Uncertain that takes the `Sending` which repeats it. A `confirmation` is waited for by each round: two rounds
    may go to two servers, of which only the second would confirm. `seconds` are those of a round, whatever happens in
    it. `repeats`: what callers write to repeat one."""

    def __init__(
        self,
        pack: Callable[[Batch[S]], Command[V]],
        told: Callable[[Sequence[S], V], list[H]],
        doubt: "Callable[[str, Sequence[str], Callable[[], Sending[Any]]], Uncertain]",
        seconds: float,
        confirmation: Confirmation | None = None,
        *,
        repeats: str = "repeat()",
    ) -> None:
        self._pack = pack
        self._repeats = repeats
        self._told = told
        self._doubt = doubt
        self._seconds = seconds
        self._confirmation = confirmation
        self._nonces = Nonces()

    def of(
        self,
        pack: Callable[[Batch[S2]], Command[V2]],
        told: Callable[[Sequence[S2], V2], list[H2]],
        go_on: GoOn = just_repeat,
    ) -> "Sender[S2, V2, H2]":
        """One of other things, else as this one. `go_on`: what a repeated enqueue does besides."""

        def doubt(why: str, ids: Sequence[str], again: Callable[[], Sending[Any]]) -> Uncertain:
            return self._doubt(why, ids, lambda: go_on(again()))

        made = Sender(pack, told, doubt, self._seconds, self._confirmation, repeats=self._repeats)
        made._nonces = self._nonces  # for one record on the server, however many flows are sent
        return made

    def send(self, items: Sequence[S], progress: Callable[[int], object] | None = None) -> Sending[H]:
        """Send tasks, in order, each round once, and what got no answer a second time. `progress` is told after each
        round how many were accepted so far.

        Raises Unavailable, ServerFull or Uncertain: the rounds after the one that failed were not sent.
        """
        rounds = _rounds(items)
        if len(rounds) == 1 and progress is None:
            return self._send_round(rounds[0])
        return self._send_rounds(rounds, progress)

    def send_as_one(self, items: Sequence[S]) -> Sending[H]:
        """Send these by one call, be there any or not: at most as many as a script takes."""
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
        # What waits for a confirmation may wait long: it has all the time, and is sent again when the connection broke.
        share = _FIRST_SHARE if self._confirmation is None else WHOLE
        try:
            answers = yield self._exchange(batches, sent_at + self._seconds, share)
            unanswered = [n for n, answer in enumerate(answers) if isinstance(answer, Unanswered)]
            if all(isinstance(answer, Answered) for answer in answers):
                for batch in batches:
                    self._nonces.was_answered(batch.nonce)
            if unanswered and self._may_repeat(sent_at):
                repeated = yield from self._again([batches[n] for n in unanswered], sent_at + self._seconds)
                for n, answer in zip(unanswered, repeated, strict=True):
                    if isinstance(answer, Answered | Unconfirmed):  # else what went wrong first says more
                        answers[n] = answer
        except Cut as cut:
            raise self._cut(cut, batches, sent_at) from None
        return self._handles(batches, answers, sent_at)

    def _may_repeat(self, sent_at: float) -> bool:
        return _is_remembered(sent_at) and time.monotonic() < sent_at + self._seconds

    def _exchange(self, batches: Sequence[Batch[S]], deadline: float, share: float = WHOLE) -> Exchange[V]:
        # One command after another, as they are sent: the next is packed while the server works on the last.
        commands = map(self._pack, batches)
        return Exchange(commands, self._confirmation, deadline, share)

    def _again(
        self, batches: Sequence[Batch[S]], deadline: float
    ) -> Generator[Exchange[Any], list[Answer[Any]], list[Answer[V]]]:
        # If the second try is refused, or cannot be sent, the first may have counted all the same: it stays Unanswered.
        try:
            answers = yield self._exchange(batches, deadline)
        except Unavailable as error:
            return [Unanswered(str(error)) for _ in batches]
        except Cut:
            raise Cut(is_sent=True) from None  # the first time
        return [Unanswered(str(answer.error)) if isinstance(answer, NotAccepted) else answer for answer in answers]

    def _handles(self, batches: Sequence[Batch[S]], answers: Sequence[Answer[V]], sent_at: float) -> list[H]:
        # Raises when not all was answered; what is in doubt says more than what was refused.
        handles: list[H] = []
        refused: list[Unavailable] = []
        doubts: list[tuple[Batch[S], str]] = []
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, Answered):
                handles += self._told(batch.items, answer.value)
            elif isinstance(answer, NotAccepted):
                refused.append(answer.error)
            else:
                doubts.append((batch, answer.why if isinstance(answer, Unconfirmed) else f"{answer.why}; {_PERHAPS}"))
        if not doubts and not refused:
            return handles
        failure = self._uncertain(doubts[0][1], [batch for batch, _ in doubts], sent_at) if doubts else refused[0]
        failure.accepted = tuple(handle.id for handle in handles)
        raise failure

    def _cut(self, cut: Cut, batches: Sequence[Batch[S]], sent_at: float) -> Unavailable | Uncertain:
        if cut.is_sent:
            return self._uncertain(f"the await was cancelled; {_PERHAPS}", batches, sent_at)
        return Unavailable("the await was cancelled before anything was sent")

    def _uncertain(self, why: str, batches: Sequence[Batch[S]], sent_at: float) -> Uncertain:
        ids = [item.id for batch in batches for item in batch.items]
        how = f"{self._repeats} of this error sends them again exactly, up to {REPEAT_SECONDS:g} s after the first time"
        return self._doubt(f"{why}: {how}", ids, partial(self._repeat, batches, sent_at))

    def _repeat(self, batches: Sequence[Batch[S]], sent_at: float) -> Sending[H]:
        if not _is_remembered(sent_at):
            raise self._uncertain(f"it is too late to repeat the enqueue; {_PERHAPS}", batches, sent_at)
        try:
            answers = yield from self._again(batches, time.monotonic() + self._seconds)
        except Cut as cut:
            raise self._cut(cut, batches, sent_at) from None
        return self._handles(batches, answers, sent_at)


def intercepted(interceptor: Interceptor, namespace: str, sending: Sending[H]) -> list[H]:
    """Have it answer whatever is sent. Raises what the answers make this raise."""
    answers: list[Any] = []
    try:
        exchange = next(sending)
        while True:
            answers = [Answered(interceptor.run(namespace, command)) for command in exchange.commands]
            exchange = sending.send(answers)
    except StopIteration as end:
        handles: list[H] = end.value
        return handles


def _rounds(items: Sequence[S]) -> Sequence[Pieces[S]]:
    if len(items) == 1:
        return [[(items, 0)]]
    batches: list[tuple[Sequence[S], int]] = []
    at = 0
    for some in _cut(items, [item.size for item in items], _BATCH_TASKS, _BATCH_BYTES):
        batches.append((some, at))
        at += len(some)
    if len(batches) == 1:
        return [batches]
    sizes = [sum([item.size for item in some]) for some, _ in batches]
    return _cut(batches, sizes, _ROUND_BATCHES, _ROUND_BYTES)


def _is_remembered(sent_at: float) -> bool:
    return time.monotonic() - sent_at < REPEAT_SECONDS


def _cut(things: Sequence[T], sizes: Sequence[int], most: int, most_bytes: int) -> list[Sequence[T]]:
    # Into runs of at most `most` things and `most_bytes`; one that is larger by itself goes alone.
    if len(things) == 1 or (len(things) <= most and sum(sizes) <= most_bytes):
        return [things] if things else []
    runs = []
    start = total = 0
    for at, size in enumerate(sizes):
        total += size
        if at > start and (at - start == most or total > most_bytes):
            runs.append(things[start:at])
            start, total = at, size
    return [*runs, things[start:]]
