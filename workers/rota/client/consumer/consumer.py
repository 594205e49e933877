"""A consumer. It is an owner of tasks like a worker, but it runs in a program of the application.

1. It registers as an owner, and a thread renews its lease: see `lease`.
2. When the program wants a task, the consumer claims one with the same script as workers, so tiers, rotation, caps and
   rates apply. It claims nothing in advance, so no task waits behind a long one.
3. If there is nothing to claim, it waits at the doorbells of its queues. Its next turn reports the token that it took
   from a doorbell.
4. It settles each task with a separate call: see `lease`.
5. When it is closed, it ends its registration, which returns the tasks that it holds.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from rota.client.command_replies import Denied, Uncertain, is_denial
from rota.client.consumer.lease import LOG, ConsumerOptions, ConsumerTransport, HeldTask, Holds, Lease
from rota.client.consumer.leased_task import LeasedTask, TakenTasks, callable_or_end, expired, leased_task
from rota.client.timed_connections import Wakeup
from rota.durations import Backoff
from rota.errors import Unavailable
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.keys import Keys
from rota.protocol.outcome import Release, Settlement, join_settlements, pack_settlement
from rota.protocol.scripts import ScriptCall
from rota.protocol.turns import Claim, ThrottleStatus, Turn, TurnReply, TurnStatus
from rota.protocol.wire import command, pack
from rota.server.connection import (
    EARLY_SECONDS,
    GRACE_SECONDS,
    NUDGE,
    PARK_SECONDS,
    Connection,
    ConnectionOptions,
    silence_error,
)
from rota.server.server_errors import ServerError
from rota.server.session import NO_REPLY
from rota.tasks.claimed_call import DefaultRunSettings, MayStart, Preparer, Runnable, StartSteps, take_steps
from rota.tasks.registry import default_registry

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0
# How long to wait before the next turn if a task has to run alone. By then, another owner may have claimed the task.
_QUARANTINE_SECONDS: Final = 1.0
# For waits shorter than this, the consumer sleeps instead of sending a BLPOP, whose round trip would take too long.
_SHORTEST_PARK_SECONDS: Final = 0.02


class Doorbells:
    """The doorbells of a consumer's queues."""

    def __init__(self, keys: Keys, queues: Iterable[str]) -> None:
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))

    def listen(self, connection: Connection, seconds: float, wakeup: Wakeup, is_over: Callable[[], bool]) -> str | None:
        """Wait until a doorbell rings, take its token, and return its queue.

        Returns "" if no doorbell rang in time, and None if `is_over` became true first. If this returns None, the
        caller must close the connection, because the reply to BLPOP may still arrive. Raises ServerError.
        """
        connection.send(command((self._start, pack((f"{seconds - EARLY_SECONDS:.3f}",)))))
        over_at = time.monotonic() + seconds
        has_nudged = False
        while (rung := connection.try_receive()) is NO_REPLY:
            if is_over():
                return None
            left = over_at - time.monotonic()
            if left <= 0 and not has_nudged:
                connection.send(NUDGE)
                has_nudged = True
            if left + GRACE_SECONDS <= 0:
                raise silence_error(seconds)
            wakeup.wait(left + GRACE_SECONDS if has_nudged else left, connection.fileno())
        return "" if rung is None else self._queues[rung[0]]


class Consumer(Iterator[LeasedTask]):
    """An iterator over leased tasks of one or more queues, for a program that runs the tasks itself.

    `Client.consumer` makes a consumer:

        with client.consumer("mail") as tasks:
            for task in tasks:
                with task:
                    send(*task.args)

    Iteration waits for a task, and ends after `stop` or `close`. It continues after an outage of the server. Several
    threads may iterate and settle at the same time. A consumer belongs to the process that made it.
    """

    def __init__(self, transport: ConsumerTransport, options: ConsumerOptions) -> None:
        """Register the consumer. Raises Unavailable or Uncertain."""
        self._pid = os.getpid()
        self._transport = transport
        self._options = options
        self._wakeup = Wakeup()
        self._bells = Doorbells(transport.store.keys, options.queues)
        run_settings = DefaultRunSettings(options.max_payload_kb)
        self._preparer = Preparer(TakenTasks(default_registry), run_settings, options.keyring)
        self._holds = Holds(transport.store, self._run, options.lease_seconds, self._wakeup.ring)
        # Held by the thread that claims or waits for a doorbell. Only one thread at a time does either.
        self._claiming = threading.Lock()
        self._connection: Connection | None = None
        self._claims: deque[Claim] = deque()
        self._now_us = 0  # The Redis time of the last turn, in microseconds.
        self._unfit: list[bytes] = []  # Outcomes of tasks that must not run. The next turn reports them.
        self._tokens: list[str] = []
        self._trouble = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        self._is_in_trouble = False
        # An entry whose task has to run alone. The consumer claims it once all its other tasks have ended.
        self._quarantined = b""
        self._stopped = False
        self._closed = False
        try:
            self._lease = Lease(replace(transport, run=self._run), options, self._wakeup.ring)
        except BaseException:
            self._wakeup.close()
            raise

    @property
    def owner(self) -> str:
        """The name under which the consumer currently holds tasks. It changes when the consumer registers again after
        losing its lease."""
        return self._lease.registration.owner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> LeasedTask:
        """Wait for a task and return it.

        Raises StopIteration after `stop` or `close`, RuntimeError in a forked child, and Unavailable if the server
        denies this user the permission to claim.
        """
        self._check_process()
        with self._claiming:
            while not self._stopped:
                task = self._step()
                if task is not None:
                    return task
            self._give_back_claims()
            raise StopIteration

    def stop(self) -> None:
        """End iteration. The consumer keeps its tasks, which can still be settled. Signal handlers may call this."""
        self._stopped = True
        self._wakeup.ring()

    def close(self) -> None:
        """Stop, and return the held tasks to their lanes.

        If the server cannot be reached, the tasks return when the lease expires. This may be called more than once, and
        does nothing in a forked child. Signal handlers must not call it.
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
        """Take one step of the loop that waits for a task, and return a task if the step has found one.

        A step waits until the consumer may hold another task, hands out a claimed task, or makes a turn and waits if
        the turn claims nothing.
        """
        try:
            if len(self._holds) >= self._options.limit:
                self._wakeup.wait(PARK_SECONDS)
            elif self._lease.registration.lost:
                self._claims.clear()
                self._lease.register_again()
            elif self._claims:
                return self._hand_out(self._claims[0])
            else:
                self._claim()
        except (ServerError, Unavailable, Uncertain) as error:
            self._disconnect()
            if is_denial(error):
                raise Denied(f"{self.owner} cannot continue: {error}") from error
            self._note_trouble(error)
            self._wakeup.wait(self._trouble.next_seconds())
        # An exception such as KeyboardInterrupt ended the wait. A reply may still arrive on this connection, so the
        # connection must not be used again.
        except BaseException:
            self._disconnect()
            raise
        return None

    def _claim(self) -> None:
        reply = self._turn(1)
        self._note_trouble(None)
        if reply.status is TurnStatus.QUARANTINE:
            self._wakeup.wait(_QUARANTINE_SECONDS)
        elif reply.status is TurnStatus.OK and not reply.claims:
            self._wait_for_work(reply.wait_us)

    def _turn(self, limit: int) -> TurnReply:
        registration = self._lease.registration
        held = self._holds.ids_of(registration)
        settled = join_settlements(self._unfit)
        turn = Turn(limit, held, tuple(self._tokens), settled, quarantined=self._quarantined)
        reply = self._connected().run(self._transport.store.turn(registration.owner, registration.tiers, turn))
        self._now_us = reply.now_us
        self._unfit.clear()
        if reply.status is not TurnStatus.MORE:
            self._tokens.clear()
        registration.lost |= reply.status is TurnStatus.LOST
        self._claims.extend(reply.claims)
        self._quarantined = reply.quarantined
        return reply

    def _hand_out(self, claim: Claim) -> LeasedTask | None:
        """Turn a claim into the task that the program gets. Return None if the task must not run now.

        If the task ends without a run, for example because it was cancelled or has expired, the next turn reports its
        outcome. If the server does not reply, the next step tries again.
        """
        prepared = self._preparer.prepare(claim.body, claim.entry.id, claim.entry.queue) if claim.body else None
        found = callable_or_end(claim, prepared, self._now_us)
        entry = claim.entry
        may_start = MayStart(entry, ThrottleStatus.START)
        if isinstance(found, Runnable) and found.settings.needs_permission:
            may_start = self._request_start(entry, found)
            if may_start.status is ThrottleStatus.LATE:
                found = expired(entry, found)
        self._claims.popleft()
        if isinstance(found, Settlement):
            self._unfit.append(pack_settlement(found))
        elif may_start.entry is not None:
            hold = HeldTask(may_start.entry, self._lease.registration, self._holds)
            self._holds.add(hold)
            return leased_task(hold, found, self._now_us)
        return None

    def _request_start(self, entry: Entry, ready: Runnable) -> MayStart:
        """Request permission to start a task, and return the server's decision, which depends on the task's rate.

        A task that may be started only once is also marked as started.
        """
        registration = self._lease.registration
        starts = StartSteps(registration.owner, self._transport.store, lambda: not registration.lost, lambda *_: None)
        return take_steps(starts.steps(entry, ready), self._take_step)

    def _take_step(self, step: ScriptCall[Any] | float) -> Any:
        if isinstance(step, float):
            return time.sleep(step)  # The server asks for a few milliseconds at most.
        return self._connected().run(step)

    def _give_back_claims(self) -> None:
        """Give back the tasks that were claimed while iteration was ending. If the server does not reply, `close` gives
        them back later."""
        if self._claims and not self._closed:
            self._unfit += [pack_settlement(Settlement(claim.entry, Release())) for claim in reversed(self._claims)]
            self._claims.clear()
            with contextlib.suppress(ServerError):
                self._turn(0)

    def _wait_for_work(self, wait_us: int) -> None:
        """Wait until a doorbell rings, but not longer than `wait_us` microseconds if this is above 0."""
        wait_seconds = min(PARK_SECONDS, wait_us / MICROSECONDS) if wait_us else float(PARK_SECONDS)
        if wait_seconds < _SHORTEST_PARK_SECONDS:
            self._wakeup.wait(wait_seconds)
            return
        queue = self._bells.listen(self._connected(), wait_seconds, self._wakeup, self._is_over)
        if queue:
            self._tokens.append(queue)
        # A token may be lost with the connection. The doorbell rings again when this owner is removed, and at the next
        # sweep.
        elif queue is None:
            self._disconnect()

    def _is_over(self) -> bool:
        return self._stopped or self._lease.registration.lost

    # The connection, and the check that the process has not forked

    def _run(self, command: ScriptCall[T]) -> T:
        self._check_process()
        return self._transport.run(command)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"this consumer belongs to process {self._pid}: create another one in the forked child")

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_to_renew:
            self._disconnect()
        if self._connection is None:
            most = self._transport.timeout_seconds
            options = ConnectionOptions(f"rota:{self._lease.slot_name}", connect_seconds=most, read_seconds=most)
            self._connection = self._transport.endpoint.connect(options)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _note_trouble(self, error: Exception | None) -> None:
        """Record whether the server responds, and log the first error of an outage."""
        if error is None:
            self._trouble.reset()
        elif not self._is_in_trouble:
            LOG.warning("the server cannot be used; consumer %s tries again: %s", self.owner, error)
        self._is_in_trouble = error is not None
