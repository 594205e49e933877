"""Enqueues on their way: in rounds of bounded size, each call exact by its nonce.

The server remembers a nonce for 60 s. A call sent again within that time is answered from memory, even when
its tasks have ended meanwhile; later it would be a new call.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from rota.errors import Unavailable, Uncertain
from rota.handle import Handle
from rota.pool import Answer, Answered, Pool, Refused, Unanswered
from rota.protocol.replies import Enqueued
from rota.protocol.store import BATCH, Command, NewTask, Store

T = TypeVar("T")

REPEAT_SECONDS: Final = 50.0  # of the server's 60; the rest is for the way there
_BATCH_BYTES: Final = 1 << 20  # a server does nothing else while it takes one in
_ROUND_BATCHES: Final = 8
_ROUND_BYTES: Final = 4 << 20  # a round is sent under one timeout: 5 s are enough at 1 MB/s


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks of one call, and the call with its nonce."""

    tasks: Sequence[NewTask]
    command: Command[list[Enqueued]]


class Sender:
    """Sends enqueues over a pool; `handle_of` makes what callers get of each."""

    def __init__(self, pool: Pool, store: Store, handle_of: Callable[[NewTask, Enqueued], Handle[Any]]) -> None:
        self._pool = pool
        self._store = store
        self._handle_of = handle_of

    def send(self, tasks: Iterable[NewTask]) -> list[Handle[Any]]:
        """Send tasks, in order, each round once, and what got no answer a second time.

        Raises Unavailable, ServerFull or Uncertain: the rounds after the one that failed were not sent.
        """
        handles: list[Handle[Any]] = []
        for batches in self._rounds(tasks):
            try:
                handles += self._send_round(batches)
            except (Unavailable, Uncertain) as error:
                error.accepted = (*(handle.id for handle in handles), *error.accepted)
                raise
        return handles

    def _rounds(self, tasks: Iterable[NewTask]) -> Iterator[list[Batch]]:
        batches = (
            Batch(tasks, self._store.enqueue(uuid.uuid4().hex, tasks))
            for tasks in _grouped(tasks, lambda task: len(task.body), BATCH, _BATCH_BYTES)
        )
        return _grouped(batches, lambda batch: len(batch.command.args.data), _ROUND_BATCHES, _ROUND_BYTES)

    def _send_round(self, batches: Sequence[Batch]) -> list[Handle[Any]]:
        sent_at = time.monotonic()
        answers = self._pool.exchange([batch.command for batch in batches])
        unanswered = [n for n, answer in enumerate(answers) if isinstance(answer, Unanswered)]
        if unanswered and _is_remembered(sent_at):
            repeated = self._exchange_again([batches[n] for n in unanswered])
            for n, answer in zip(unanswered, repeated, strict=True):
                if isinstance(answer, Answered):  # else what went wrong first says more
                    answers[n] = answer
        return self._sort_out(batches, answers, sent_at)

    def _exchange_again(self, batches: Sequence[Batch]) -> list[Answer[list[Enqueued]]]:
        # Refused, or not even sent, the second time says nothing about the first.
        try:
            answers = self._pool.exchange([batch.command for batch in batches])
        except Unavailable as error:
            return [Unanswered(str(error)) for _ in batches]
        return [Unanswered(str(answer.error)) if isinstance(answer, Refused) else answer for answer in answers]

    def _sort_out(
        self, batches: Sequence[Batch], answers: Sequence[Answer[list[Enqueued]]], sent_at: float
    ) -> list[Handle[Any]]:
        pairs = list(zip(batches, answers, strict=True))
        handles = [
            self._handle_of(task, word)
            for batch, answer in pairs
            if isinstance(answer, Answered)
            for task, word in zip(batch.tasks, answer.value, strict=True)
        ]
        failure = self._failure(pairs, sent_at)
        if failure is None:
            return handles
        failure.accepted = tuple(handle.id for handle in handles)
        raise failure

    def _failure(
        self, pairs: Sequence[tuple[Batch, Answer[list[Enqueued]]]], sent_at: float
    ) -> Unavailable | Uncertain | None:
        doubts = [(batch, answer.why) for batch, answer in pairs if isinstance(answer, Unanswered)]
        if doubts:
            return self._uncertain(doubts[0][1], [batch for batch, _ in doubts], sent_at)
        return next((answer.error for _, answer in pairs if isinstance(answer, Refused)), None)

    def _uncertain(self, why: str, batches: Sequence[Batch], sent_at: float) -> Uncertain:
        ids = [task.id for batch in batches for task in batch.tasks]
        how = f"repeat() of this error sends them again exactly, up to {REPEAT_SECONDS:g} s after the first time"
        again = partial(self._repeat, batches, sent_at)
        return Uncertain(f"{why}; the tasks may have been accepted: {how}", ids, again=again)

    def _repeat(self, batches: Sequence[Batch], sent_at: float) -> list[Handle[Any]]:
        if not _is_remembered(sent_at):
            raise self._uncertain("it is too late to repeat the enqueue", batches, sent_at)
        return self._sort_out(batches, self._exchange_again(batches), sent_at)


def _is_remembered(sent_at: float) -> bool:
    return time.monotonic() - sent_at < REPEAT_SECONDS


def _grouped(things: Iterable[T], bytes_of: Callable[[T], int], most: int, most_bytes: int) -> Iterator[list[T]]:
    # One that is larger than `most_bytes` by itself goes alone.
    group: list[T] = []
    size = 0
    for thing in things:
        more = bytes_of(thing)
        if group and (len(group) == most or size + more > most_bytes):
            yield group
            group, size = [], 0
        group.append(thing)
        size += more
    if group:
        yield group
