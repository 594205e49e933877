"""The consumer: an owner like a worker, in a program of the application.

1. It registers as an owner, and a thread of its own renews the lease: see `lease`.
2. Who asks for a task claims one, by the turn that workers make: so tiers, rotation, caps and rates are theirs. Nothing
   is claimed before somebody asks, so no task waits behind a long one here.
3. With nothing to claim it waits at the doorbells of its queues. A token that it took is told in its next turn.
4. Each task is settled by a call of its own: see `lease`.
5. Closed, it retires itself, which gives back what it holds.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from rota.client.answers import Denied, Uncertain, is_denial
from rota.client.consumer.lease import LOG, HeldTask, Holds, Lease, Lines, Terms
from rota.client.consumer.leased_task import LeasedTask, TakenTasks, callable_or_end, expired, leased_task
from rota.client.timed_connections import Wakeup
from rota.durations import Backoff
from rota.errors import Unavailable
from rota.protocol.command import Command
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.keys import Keys
from rota.protocol.outcome import Release, Settlement, join_settlements, pack_settlement
from rota.protocol.turns import Claim, ThrottleWord, Turn, TurnReply, TurnWord
from rota.protocol.wire import command, pack
from rota.server.connection import (
    EARLY_SECONDS,
    GRACE_SECONDS,
    NUDGE,
    PARK_SECONDS,
    Connection,
    ConnectionOptions,
    unanswered,
)
from rota.server.server_errors import ServerError
from rota.server.session import NO_REPLY
from rota.tasks.claimed_call import DefaultTerms, MayStart, Preparer, Runnable, StartSteps, take_steps
from rota.tasks.registry import default_registry

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.05
_MOST_PAUSE_SECONDS: Final = 2.0
_ALONE_SECONDS: Final = 1.0  # by then somebody else may have taken what has to run alone
_SHORTEST_PARK_SECONDS: Final = 0.02  # below this a round trip for the park would take too much of the time


class Doorbells:
    """The doorbells of a consumer's queues."""

    def __init__(self, keys: Keys, queues: Iterable[str]) -> None:
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))

    def listen(self, connection: Connection, seconds: float, wakeup: Wakeup, is_over: Callable[[], bool]) -> str | None:
        """Wait until one rings or the time is over. Returns the queue whose token was taken, "" when nobody rang, and
        None when it was over before: an answer may still come, so close the connection. Raises ServerError."""
        connection.send(command((self._start, pack((f"{seconds - EARLY_SECONDS:.3f}",)))))
        over_at, has_nudged = time.monotonic() + seconds, False
        while (rung := connection.try_receive()) is NO_REPLY:
            if is_over():
                return None
            left = over_at - time.monotonic()
            if left <= 0 and not has_nudged:
                connection.send(NUDGE)
                has_nudged = True
            if left + GRACE_SECONDS <= 0:
                raise unanswered(seconds)
            wakeup.wait(left + GRACE_SECONDS if has_nudged else left, connection.fileno())
        return "" if rung is None else self._queues[rung[0]]


class Consumer(Iterator[LeasedTask]):
    """Leased tasks of one queue or several, for a program to run by itself: `Client.consumer` makes it.

    Iterating blocks until there is a task, and ends after `stop` or `close`. It goes on through outages of the server.
    Several threads may iterate, and settle, at once. It belongs to the process that made it.
    """

    def __init__(self, lines: Lines, terms: Terms) -> None:
        """Registers. Raises Unavailable or Uncertain."""
        self._pid = os.getpid()
        self._lines = lines
        self._terms = terms
        self._wakeup = Wakeup()
        self._bells = Doorbells(lines.store.keys, terms.queues)
        self._preparer = Preparer(TakenTasks(default_registry), DefaultTerms(terms.max_payload_kb))
        self._holds = Holds(lines.store, self._run, terms.lease_seconds, self._wakeup.ring)
        self._claiming = threading.Lock()  # one thread at a time claims and listens
        self._connection: Connection | None = None
        self._claims: deque[Claim] = deque()
        self._now_us = 0  # Redis time of the last turn
        self._unfit: list[bytes] = []  # outcomes of what nobody is to run, until a turn that told them was answered
        self._tokens: list[str] = []
        self._trouble = Backoff(_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS)
        self._is_in_trouble = False
        self._alone = b""  # the entry that has to run alone, for which what is held has to end
        self._stopped = False
        self._closed = False
        try:
            self._lease = Lease(replace(lines, run=self._run), terms, self._wakeup.ring)
        except BaseException:
            self._wakeup.close()
            raise

    @property
    def owner(self) -> str:
        """Under which name it holds tasks now: another one after a lease was lost."""
        return self._lease.life.owner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> LeasedTask:
        """Wait for a task. Raises StopIteration after `stop` or `close`, RuntimeError in a forked child, and
        Unavailable when the server does not let this user go on."""
        self._check_process()
        with self._claiming:
            while not self._stopped:
                task = self._step()
                if task is not None:
                    return task
            self._give_back_claims()
            raise StopIteration

    def stop(self) -> None:
        """Have iteration end. What is held stays so, and may be settled. Signal handlers may call it."""
        self._stopped = True
        self._wakeup.ring()

    def close(self) -> None:
        """Stop, and give back what is held. May be repeated; does nothing in a forked child. Not for signal handlers.

        When the server cannot be reached, what is held goes back when the lease has run out.
        """
        if os.getpid() != self._pid:
            return
        self.stop()
        with self._claiming:
            if not self._closed:
                self._closed = True
                self._lease.end(self._holds.close() + join_settlements(self._unfit))
                self._disconnect()
                self._wakeup.close()

    # Claiming

    def _step(self) -> LeasedTask | None:
        """Take one step towards a task: wait for room, take what is claimed, or make a turn and wait if it finds
        nothing."""
        try:
            if len(self._holds) >= self._terms.limit:
                self._wakeup.wait(PARK_SECONDS)
            elif self._lease.life.lost:
                self._claims.clear()
                self._lease.begin_anew()
            elif self._claims:
                return self._hand_out(self._claims[0])
            else:
                self._look_for_work()
        except (ServerError, Unavailable, Uncertain) as error:
            self._disconnect()
            if is_denial(error):
                raise Denied(f"{self.owner} may not go on: {error}") from error
            self._say_trouble(error)
            self._wakeup.wait(self._trouble.next_seconds())
        except BaseException:  # KeyboardInterrupt, say: an answer may still come on this connection
            self._disconnect()
            raise
        return None

    def _look_for_work(self) -> None:
        reply = self._turn(1)
        self._say_trouble(None)
        if reply.word is TurnWord.ALONE:
            self._wakeup.wait(_ALONE_SECONDS)
        elif reply.word is TurnWord.OK and not reply.claims:
            self._wait_for_work(reply.wait_us)

    def _turn(self, limit: int) -> TurnReply:
        life = self._lease.life
        held, settled = self._holds.ids_of(life), join_settlements(self._unfit)
        turn = Turn(limit, held, tuple(self._tokens), settled, alone=self._alone)
        reply = self._connected().run(self._lines.store.turn(life.owner, life.tiers, turn))
        self._now_us = reply.now_us
        self._unfit.clear()
        if reply.word is not TurnWord.MORE:
            self._tokens.clear()
        life.lost |= reply.word is TurnWord.LOST
        self._claims.extend(reply.claims)
        self._alone = reply.alone
        return reply

    def _hand_out(self, claim: Claim) -> LeasedTask | None:
        """Hand out a claimed task, or note how it ends if nobody is to run it. If the server does not answer, the next
        step tries again."""
        prepared = self._preparer.prepare(claim.body) if claim.body else None
        found, entry = callable_or_end(claim, prepared, self._now_us), claim.entry
        may_start = MayStart(entry, ThrottleWord.START)
        if isinstance(found, Runnable) and found.terms.asks_first:
            may_start = self._ask_to_start(entry, found)
            if may_start.word is ThrottleWord.LATE:
                found = expired(entry, found)
        self._claims.popleft()
        if isinstance(found, Settlement):
            self._unfit.append(pack_settlement(found))
        elif may_start.entry is not None:
            hold = HeldTask(may_start.entry, self._lease.life, self._holds)
            self._holds.add(hold)
            return leased_task(hold, found, self._now_us)
        return None

    def _ask_to_start(self, entry: Entry, ready: Runnable) -> MayStart:
        """Whether a task may start: by its rate, and once it is marked, if it may be started once at most."""
        life = self._lease.life
        starts = StartSteps(life.owner, self._lines.store, lambda: not life.lost, lambda *_: None)
        return take_steps(starts.steps(entry, ready), self._take_step)

    def _take_step(self, step: Command[Any] | float) -> Any:
        if isinstance(step, float):
            return time.sleep(step)  # some milliseconds at most
        return self._connected().run(step)

    def _give_back_claims(self) -> None:
        """What came while iteration was ended. If the server cannot be asked, `close` gives it back."""
        if self._claims and not self._closed:
            self._unfit += [pack_settlement(Settlement(claim.entry, Release())) for claim in reversed(self._claims)]
            self._claims.clear()
            with contextlib.suppress(ServerError):
                self._turn(0)

    def _wait_for_work(self, wait_us: int) -> None:
        """Listen at the doorbells."""
        patience = min(PARK_SECONDS, wait_us / MICROSECONDS) if wait_us else float(PARK_SECONDS)
        if patience < _SHORTEST_PARK_SECONDS:
            self._wakeup.wait(patience)
            return
        queue = self._bells.listen(self._connected(), patience, self._wakeup, self._is_over)
        if queue:
            self._tokens.append(queue)
        elif queue is None:  # a token may have been taken: whoever retires this owner rings, as does the sweep
            self._disconnect()

    def _is_over(self) -> bool:
        return self._stopped or self._lease.life.lost

    # Its process and its connection

    def _run(self, command: Command[T]) -> T:
        self._check_process()
        return self._lines.run(command)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"this consumer belongs to process {self._pid}: make one in the forked child itself")

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_to_renew:
            self._disconnect()
        if self._connection is None:
            most = self._lines.timeout_seconds
            options = ConnectionOptions(f"rota:{self._lease.place}", connect_seconds=most, read_seconds=most)
            self._connection = self._lines.endpoint.connect(options)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say_trouble(self, error: Exception | None) -> None:
        """Take note whether the server answers; the log is told once when it does not."""
        if error is None:
            self._trouble.reset()
        elif not self._is_in_trouble:
            LOG.warning("the server does not answer as it should, %s tries on: %s", self.owner, error)
        self._is_in_trouble = error is not None
