"""Enqueues on their way: in rounds of bounded size, each call exact by its nonce. No I/O: whoever has connections, that
block or not, drives the `Sending`.

The server remembers a nonce for 60 s. A call sent again within that time is answered from memory, even when
its tasks have ended meanwhile; later it would be a new call.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rota.client.answers import WHOLE, Answer, Answered, Exchange, NotAccepted, Unanswered, Unconfirmed
from rota.errors import Unavailable, Uncertain
from rota.protocol.command import Command
from rota.protocol.replies import Enqueued
from rota.protocol.store import NewTask, Store
from rota.server.durability import Confirmation


class _WithId(Protocol):
    @property
    def id(self) -> str: ...


H = TypeVar("H", bound=_WithId)
T = TypeVar("T")

REPEAT_SECONDS: Final = 50.0  # of the server's 60; the rest is for the way there
_BATCH_TASKS: Final = 125  # a script of half a millisecond, while the next batch is packed
_BATCH_BYTES: Final = 1 << 20  # a server does nothing else while it takes one in
_ROUND_BATCHES: Final = 32
_ROUND_BYTES: Final = 4 << 20  # what may be on its way without an answer, under one timeout
_FIRST_SHARE: Final = 0.5  # of the time for an answer: the rest is for the same once more, on another connection
_PERHAPS: Final = "the tasks may have been accepted"

EnqueueExchange = Exchange[list[Enqueued]]
EnqueueAnswers = list[Answer[list[Enqueued]]]
Sending = Generator[EnqueueExchange, EnqueueAnswers, list[H]]
"""Exchanges, one after the other: it is sent their answers, or thrown Unavailable when nothing was sent, or Cut when
nobody waits any more. Returns the handles."""


class Cut(Exception):
    """Nobody waits for the answers of an exchange any more."""

    def __init__(self, *, is_sent: bool) -> None:
        super().__init__()
        self.is_sent = is_sent


class Batch(NamedTuple):
    """Tasks of one call, and its nonce."""

    tasks: Sequence[NewTask]
    nonce: str


class Sender(Generic[H]):
    """How enqueues are sent; `handle_of` makes what callers get of each, and `doubt` the Uncertain that takes the
    `Sending` which repeats it. A `confirmation` is waited for by each round: two rounds may go to two servers, of which
    only the second would confirm. `seconds` are those of a round, whatever happens in it. `repeats`: what callers
    write to repeat one."""

    def __init__(
        self,
        store: Store,
        handle_of: Callable[[NewTask, Enqueued], H],
        doubt: "Callable[[str, Sequence[str], Callable[[], Sending[H]]], Uncertain]",
        seconds: float,
        confirmation: Confirmation | None = None,
        *,
        repeats: str = "repeat()",
    ) -> None:
        self._store = store
        self._repeats = repeats
        self._handle_of = handle_of
        self._doubt = doubt
        self._seconds = seconds
        self._confirmation = confirmation

    def send(self, tasks: Sequence[NewTask]) -> Sending[H]:
        """Send tasks, in order, each round once, and what got no answer a second time.

        Raises Unavailable, ServerFull or Uncertain: the rounds after the one that failed were not sent.
        """
        rounds = _rounds(tasks)
        return self._send_round(rounds[0]) if len(rounds) == 1 else self._send_rounds(rounds)

    def _send_rounds(self, rounds: Sequence[Sequence[Batch]]) -> Sending[H]:
        handles: list[H] = []
        for batches in rounds:
            try:
                handles += yield from self._send_round(batches)
            except (Unavailable, Uncertain) as error:
                error.accepted = (*(handle.id for handle in handles), *error.accepted)
                raise
        return handles

    def _send_round(self, batches: Sequence[Batch]) -> Sending[H]:
        sent_at = time.monotonic()
        # What waits for a confirmation may wait long: it has all the time, and is sent again when the connection broke.
        share = _FIRST_SHARE if self._confirmation is None else WHOLE
        try:
            answers = yield self._exchange(batches, sent_at + self._seconds, share)
            unanswered = [n for n, answer in enumerate(answers) if isinstance(answer, Unanswered)]
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

    def _exchange(self, batches: Sequence[Batch], deadline: float, share: float = WHOLE) -> EnqueueExchange:
        # One command after another, as they are sent: the next is packed while the server works on the last.
        commands = map(self._enqueue, batches)
        return Exchange(commands, self._confirmation, deadline, share)

    def _enqueue(self, batch: Batch) -> Command[list[Enqueued]]:
        return self._store.enqueue(batch.nonce, batch.tasks)

    def _again(
        self, batches: Sequence[Batch], deadline: float
    ) -> Generator[EnqueueExchange, EnqueueAnswers, EnqueueAnswers]:
        # If the second try is refused, or cannot be sent, the first may have counted all the same: it stays Unanswered.
        try:
            answers = yield self._exchange(batches, deadline)
        except Unavailable as error:
            return [Unanswered(str(error)) for _ in batches]
        except Cut:
            raise Cut(is_sent=True) from None  # the first time
        return [Unanswered(str(answer.error)) if isinstance(answer, NotAccepted) else answer for answer in answers]

    def _handles(self, batches: Sequence[Batch], answers: Sequence[Answer[list[Enqueued]]], sent_at: float) -> list[H]:
        # Raises when not all was answered; what is in doubt says more than what was refused.
        handles: list[H] = []
        refused: list[Unavailable] = []
        doubts: list[tuple[Batch, str]] = []
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, Answered):
                handles += [self._handle_of(task, word) for task, word in zip(batch.tasks, answer.value, strict=True)]
            elif isinstance(answer, NotAccepted):
                refused.append(answer.error)
            else:
                doubts.append((batch, answer.why if isinstance(answer, Unconfirmed) else f"{answer.why}; {_PERHAPS}"))
        if not doubts and not refused:
            return handles
        failure = self._uncertain(doubts[0][1], [batch for batch, _ in doubts], sent_at) if doubts else refused[0]
        failure.accepted = tuple(handle.id for handle in handles)
        raise failure

    def _cut(self, cut: Cut, batches: Sequence[Batch], sent_at: float) -> Unavailable | Uncertain:
        if cut.is_sent:
            return self._uncertain(f"the await was cancelled; {_PERHAPS}", batches, sent_at)
        return Unavailable("the await was cancelled before anything was sent")

    def _uncertain(self, why: str, batches: Sequence[Batch], sent_at: float) -> Uncertain:
        ids = [task.id for batch in batches for task in batch.tasks]
        how = f"{self._repeats} of this error sends them again exactly, up to {REPEAT_SECONDS:g} s after the first time"
        return self._doubt(f"{why}: {how}", ids, partial(self._repeat, batches, sent_at))

    def _repeat(self, batches: Sequence[Batch], sent_at: float) -> Sending[H]:
        if not _is_remembered(sent_at):
            raise self._uncertain(f"it is too late to repeat the enqueue; {_PERHAPS}", batches, sent_at)
        try:
            answers = yield from self._again(batches, time.monotonic() + self._seconds)
        except Cut as cut:
            raise self._cut(cut, batches, sent_at) from None
        return self._handles(batches, answers, sent_at)


def _rounds(tasks: Sequence[NewTask]) -> Sequence[Sequence[Batch]]:
    batches = [
        Batch(some, os.urandom(16).hex())
        for some in _cut(tasks, [len(task.body) for task in tasks], _BATCH_TASKS, _BATCH_BYTES)
    ]
    if len(batches) == 1:
        return [batches]
    return _cut(
        batches, [sum([len(task.body) for task in batch.tasks]) for batch in batches], _ROUND_BATCHES, _ROUND_BYTES
    )


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
