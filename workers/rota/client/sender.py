"""Enqueues on their way: in rounds of bounded size, each call exact by its nonce.

The server remembers a nonce for 60 s. A call sent again within that time is answered from memory, even when
its tasks have ended meanwhile; later it would be a new call.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from rota.client.interception import interception
from rota.client.pool import Answer, Answered, ClientPool, NotAccepted, Unanswered, Unconfirmed
from rota.client.status import Handle
from rota.errors import Unavailable, Uncertain
from rota.protocol.replies import Enqueued
from rota.protocol.store import NewTask, Store
from rota.server.durability import Confirmation
from rota.soft_limit import time_limit_deferred

T = TypeVar("T")

REPEAT_SECONDS: Final = 50.0  # of the server's 60; the rest is for the way there
_BATCH_TASKS: Final = 125  # a script of half a millisecond, while the next batch is packed
_BATCH_BYTES: Final = 1 << 20  # a server does nothing else while it takes one in
_ROUND_BATCHES: Final = 32
_ROUND_BYTES: Final = 4 << 20  # what may be on its way without an answer; each batch of it is sent under one timeout
_PERHAPS: Final = "the tasks may have been accepted"


class Batch(NamedTuple):
    """Tasks of one call, and its nonce."""

    tasks: Sequence[NewTask]
    nonce: str


class Sender:
    """Sends enqueues over a pool; `handle_of` makes what callers get of each. A `confirmation` is waited for by each
    round: two rounds may go to two servers, of which only the second would confirm."""

    def __init__(
        self,
        pool: ClientPool,
        store: Store,
        handle_of: Callable[[NewTask, Enqueued], Handle[Any]],
        confirmation: Confirmation | None = None,
    ) -> None:
        self._pool = pool
        self._store = store
        self._handle_of = handle_of
        self._confirmation = confirmation

    def send(self, tasks: Sequence[NewTask]) -> list[Handle[Any]]:
        """Send tasks, in order, each round once, and what got no answer a second time.

        Raises Unavailable, ServerFull or Uncertain: the rounds after the one that failed were not sent.
        """
        if (interceptor := interception.interceptor) is not None:
            words = interceptor.enqueue(self._store.keys.namespace, tasks)
            return [self._handle_of(task, word) for task, word in zip(tasks, words, strict=True)]
        handles: list[Handle[Any]] = []
        with time_limit_deferred:
            for batches in _rounds(tasks):
                try:
                    handles += self._send_round(batches)
                except (Unavailable, Uncertain) as error:
                    error.accepted = (*(handle.id for handle in handles), *error.accepted)
                    raise
        return handles

    def _send_round(self, batches: Sequence[Batch]) -> list[Handle[Any]]:
        sent_at = time.monotonic()
        answers = self._exchange(batches)
        unanswered = [n for n, answer in enumerate(answers) if isinstance(answer, Unanswered)]
        if unanswered and _is_remembered(sent_at):
            repeated = self._exchange_again([batches[n] for n in unanswered])
            for n, answer in zip(unanswered, repeated, strict=True):
                if isinstance(answer, Answered | Unconfirmed):  # else what went wrong first says more
                    answers[n] = answer
        return self._handles(batches, answers, sent_at)

    def _exchange(self, batches: Sequence[Batch]) -> list[Answer[list[Enqueued]]]:
        # One command after another, as the pool sends them: it packs the next while the server works on the last.
        commands = (self._store.enqueue(batch.nonce, batch.tasks) for batch in batches)
        return self._pool.exchange(commands, self._confirmation)

    def _exchange_again(self, batches: Sequence[Batch]) -> list[Answer[list[Enqueued]]]:
        # If the second try is refused, or cannot be sent, the first may have counted all the same: it stays Unanswered.
        try:
            answers = self._exchange(batches)
        except Unavailable as error:
            return [Unanswered(str(error)) for _ in batches]
        return [Unanswered(str(answer.error)) if isinstance(answer, NotAccepted) else answer for answer in answers]

    def _handles(
        self, batches: Sequence[Batch], answers: Sequence[Answer[list[Enqueued]]], sent_at: float
    ) -> list[Handle[Any]]:
        # Raises when not all was answered; what is in doubt says more than what was refused.
        handles: list[Handle[Any]] = []
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

    def _uncertain(self, why: str, batches: Sequence[Batch], sent_at: float) -> Uncertain:
        ids = [task.id for batch in batches for task in batch.tasks]
        how = f"repeat() of this error sends them again exactly, up to {REPEAT_SECONDS:g} s after the first time"
        return Uncertain(f"{why}: {how}", ids, again=partial(self._repeat, batches, sent_at))

    def _repeat(self, batches: Sequence[Batch], sent_at: float) -> list[Handle[Any]]:
        if not _is_remembered(sent_at):
            raise self._uncertain(f"it is too late to repeat the enqueue; {_PERHAPS}", batches, sent_at)
        with time_limit_deferred:
            return self._handles(batches, self._exchange_again(batches), sent_at)


def _rounds(tasks: Sequence[NewTask]) -> Iterator[list[Batch]]:
    batches = _cut(tasks, [len(task.body) for task in tasks], _BATCH_TASKS, _BATCH_BYTES)
    sizes = [sum([len(task.body) for task in batch]) for batch in batches]
    for some in _cut(batches, sizes, _ROUND_BATCHES, _ROUND_BYTES):
        yield [Batch(batch, os.urandom(16).hex()) for batch in some]


def _is_remembered(sent_at: float) -> bool:
    return time.monotonic() - sent_at < REPEAT_SECONDS


def _cut(things: Sequence[T], sizes: Sequence[int], most: int, most_bytes: int) -> list[Sequence[T]]:
    # Into runs of at most `most` things and `most_bytes`; one that is larger by itself goes alone.
    if len(things) <= most and sum(sizes) <= most_bytes:
        return [things] if things else []
    runs = []
    start = total = 0
    for at, size in enumerate(sizes):
        total += size
        if at > start and (at - start == most or total > most_bytes):
            runs.append(things[start:at])
            start, total = at, size
    return [*runs, things[start:]]
