"""The lease of a consumer, the tasks that it holds, and how each of them is settled.

The consumer registers as an owner, and a thread renews its lease. If the lease is lost, the consumer registers again.
When it is closed, it ends its registration. Between renewals the thread waits for messages in the list `orders` of its
node, as a master does. A message means that a task was cancelled. The thread then renews at once, because the reply to
a renewal names all cancelled tasks.

A settlement names the entry, which is its fencing token. Therefore the consumer can repeat a settlement until there is
a reply. A copy that arrives late or twice changes nothing.
"""

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from rota.client.command_replies import Uncertain, is_denial
from rota.client.timed_connections import ReplyList, Wakeup
from rota.durations import Backoff, Duration, seconds
from rota.errors import LeaseLost, Unavailable
from rota.protocol.entry import Entry
from rota.protocol.outcome import Settlement, error_line, join_settlements, pack_settlement
from rota.protocol.scripts import RunCall, ScriptCall
from rota.protocol.store import BATCH, Blame, Store
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn, TurnReply, TurnStatus
from rota.protocol.wire import Packed
from rota.server.endpoint import Endpoint
from rota.tasks.keyring import Keyring
from rota.tasks.options import check_queue

T = TypeVar("T")

LOG = logging.getLogger("rota.consumer")
_SHORTEST_SECONDS: Final = 1.0
_RENEWALS_A_LEASE: Final = 4
_AGAIN_SECONDS: Final = 1.0
_HOST_CHARACTERS: Final = 60
_TRIES_TO_UNREGISTER: Final = 2
_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_SETTLE_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The queues from which a consumer takes tasks, and its limits."""

    queues: tuple[str, ...]
    limit: int  # The number of tasks that the consumer may hold at a time.
    lease_seconds: float
    max_payload_kb: int  # The largest body that the consumer accepts, in KiB.
    keyring: Keyring | None = None  # Verifies the signatures of tasks.


def consumer_options(
    queues: tuple[str, ...], limit: int, lease_seconds: Duration, max_payload_kb: int, keyring: Keyring | None = None
) -> ConsumerOptions:
    """Check the arguments of a consumer, and return them as one record. Raises InvalidName, TypeError or ValueError."""
    for queue in queues:
        check_queue(queue)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit must be a whole number, got {limit!r}")
    if not 1 <= limit <= BATCH:
        raise ValueError(f"limit must be from 1 to {BATCH}, got {limit}")
    lease = seconds(lease_seconds, "lease_seconds")
    if lease < _SHORTEST_SECONDS:
        raise ValueError(f"lease_seconds must be at least {_SHORTEST_SECONDS:g}, got {lease_seconds!r}")
    return ConsumerOptions(tuple(dict.fromkeys(queues)), limit, lease, max_payload_kb, keyring)


class OwnerRegistration:
    """A registration of the consumer as an owner, which lasts until its lease is lost or the consumer is closed."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tiers: Packed  # The tiers of the consumer's queues, in wire form.
        self.cancelled: frozenset[bytes] = frozenset()  # The entries of cancelled tasks, as raw text.
        self.lost = False


@dataclass(frozen=True, slots=True)
class ConsumerTransport:
    """A consumer's access to the server.

    Any thread may call `run`. The consumer also opens its own connections to `endpoint`, and waits at most
    `timeout_seconds` for a reply on them.
    """

    store: Store
    run: RunCall
    endpoint: Endpoint
    timeout_seconds: float


class Lease:
    """The lease of one consumer. It registers the consumer as an owner, and a thread renews the lease. After a loss,
    the consumer can register again, under another owner name.

    If a renewal finds that the lease is lost, it calls the function `lost`.
    """

    def __init__(self, transport: ConsumerTransport, options: ConsumerOptions, lost: Callable[[], None]) -> None:
        """Register for the first time. Raises Unavailable or Uncertain."""
        self._node = _node()
        self.slot_name = f"{self._node}:0"
        self._store = transport.store
        self._run = transport.run
        self._options = options
        self._lost = lost
        orders = transport.store.keys.orders(self._node)
        self._orders = ReplyList(transport.endpoint, transport.timeout_seconds, orders)
        self._lease_ms = round(options.lease_seconds * 1000)
        self._over = threading.Event()
        self.registration = self._register()
        self._wakeup = Wakeup()
        threading.Thread(target=self._keep, name="rota-consumer", daemon=True).start()

    def register_again(self) -> None:
        """Register again, after the lease was lost. Raises Unavailable or Uncertain."""
        self.registration = self._register()

    def end(self, unreported: Packed) -> None:
        """End the registration, which returns the held tasks to their lanes.

        The outcomes in `unreported` may not have reached the server, so they are reported first.
        """
        self._over.set()
        self._wakeup.ring()
        call = self._store.reap_exited(self.registration.owner, Blame(), unreported, self.registration.tiers)
        for _ in range(_TRIES_TO_UNREGISTER):
            try:
                self._run(call)
            except (Unavailable, Uncertain) as error:
                LOG.warning(
                    "the tasks of consumer %s return to their queues only when its lease has expired: %s",
                    self.registration.owner,
                    error,
                )
            else:
                return

    def _register(self) -> OwnerRegistration:
        registration = OwnerRegistration(self._run(self._store.register(self._lease_ms, [self.slot_name]))[0])
        self._attend(registration)
        return registration

    def _attend(self, registration: OwnerRegistration) -> None:
        reply = self._run(self._store.attend(self._lease_ms, registration.owner, self._options.queues))
        shares = reply.shares if reply.registered else tuple(map(QueueShare, self._options.queues))
        registration.tiers = pack_tiers([domain_of(shares)])
        registration.cancelled = reply.cancelled
        # When the consumer has been closed, a missing owner does not mean that its lease was lost.
        if not reply.registered and not registration.lost and not self._over.is_set():
            registration.lost = True
            LOG.warning("consumer %s has lost its lease: the tasks that it held run again", registration.owner)
            self._lost()

    def _keep(self) -> None:
        usual = pause = self._options.lease_seconds / _RENEWALS_A_LEASE
        while self._rest(pause, listens=pause == usual):
            try:
                self._attend(self.registration)
                pause = usual
            except Exception as error:  # noqa: BLE001 - only this thread renews; if it ended, tasks would run twice
                if pause == usual:  # Log only the first of several failures in a row.
                    LOG.warning(
                        "the lease of consumer %s was not renewed: %s", self.registration.owner, error_line(error)
                    )
                pause = min(_AGAIN_SECONDS, usual / 2)
        self._orders.close()
        self._wakeup.close()

    def _rest(self, seconds: float, *, listens: bool) -> bool:
        """Wait until the seconds have passed or a message arrives. Return False if the registration is ending."""
        until = time.monotonic() + seconds
        while not self._over.is_set() and (left := until - time.monotonic()) > 0:
            try:
                if listens and not self._orders.is_parked:
                    self._orders.park()
                if not self._orders.is_parked:
                    self._wakeup.wait(left)
                    continue
                self._wakeup.wait(min(left, self._orders.silent_at - time.monotonic()), self._orders.fileno())
                if self._orders.messages():
                    break
            except Unavailable:  # The next renewal logs the error.
                listens = False
        return not self._over.is_set()


def _node() -> str:
    """Return a name under which this process appears as a node: `consumer-HOST-PID-RANDOM`."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:_HOST_CHARACTERS]
    return f"consumer-{host}-{os.getpid()}-{os.urandom(4).hex()}"


class Fate(Enum):
    """The state of a task that a consumer has handed out: it is still held, was settled, or was lost with the lease."""

    HELD = auto()
    SETTLED = auto()
    LOST = auto()


class HeldTask:
    """A task that a consumer holds.

    `fate` is the state of the task, as far as this process knows. `sent` is the outcome that was sent, if there was no
    reply to it.
    """

    def __init__(self, entry: Entry, registration: OwnerRegistration, holds: "Holds") -> None:
        self.entry = entry
        self.registration = registration
        self.fate = Fate.HELD
        self.sent: bytes | None = None
        self.settling = threading.Lock()
        self._holds = holds

    @property
    def owner(self) -> str:
        """The name of the owner that holds the task."""
        return self.registration.owner

    @property
    def cancelled(self) -> bool:
        """Whether a client has cancelled the task."""
        return self.entry.text in self.registration.cancelled

    def settle(self, settlement: Settlement) -> None:
        """Settle the task. Raises LeaseLost, Unavailable, Uncertain or RuntimeError."""
        with self.settling:
            self._holds.settle(self, pack_settlement(settlement))


class Holds:
    """The tasks that a consumer has handed out to the program and still holds. The function `changed` is called each
    time when one of them is no longer held."""

    def __init__(self, store: Store, run: RunCall, timeout_seconds: float, changed: Callable[[], None]) -> None:
        self._store = store
        self._run = run
        self._timeout_seconds = timeout_seconds
        self._changed = changed
        self._held: dict[bytes, HeldTask] = {}
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self._held)

    def ids_of(self, registration: OwnerRegistration) -> tuple[str, ...]:
        """Return the ids of the tasks held under this registration, which each turn has to name.

        Tasks of a lost registration are left out, because one of them may have the same id as a task held now.
        """
        return tuple(hold.entry.id for hold in list(self._held.values()) if hold.registration is registration)

    def add(self, hold: HeldTask) -> None:
        """Add a task that the consumer hands out."""
        self._held[hold.entry.text] = hold

    def settle(self, hold: HeldTask, packed: bytes) -> None:
        """Settle a task on the server. Raises LeaseLost, Unavailable, Uncertain or RuntimeError."""
        self._check(hold)
        registration = hold.registration
        turn = Turn(0, self.ids_of(registration), settlements=join_settlements([packed]))
        reply = self._run_until_reply(self._store.turn(registration.owner, registration.tiers, turn), hold, packed)
        registration.lost |= reply.status is TurnStatus.LOST
        # While an owner lives, only its own outcomes remove an entry from its list. If the entry is gone and an outcome
        # was sent earlier, that outcome was therefore applied.
        counted_before = hold.sent is not None and not registration.lost
        if hold.entry.text not in reply.stale or counted_before:
            self._end(hold, Fate.SETTLED)
            return
        self._end(hold, Fate.LOST)
        raise self._doubt(hold) if hold.sent else self._loss(hold)

    def close(self) -> Packed:
        """Forget all held tasks, and return the outcomes that may not have reached the server."""
        self._closed.set()
        left = list(self._held.values())
        for hold in left:
            self._end(hold, Fate.LOST)
        return join_settlements([hold.sent for hold in left if hold.sent])

    def _check(self, hold: HeldTask) -> None:
        if hold.fate is Fate.SETTLED:
            raise RuntimeError(f"task {hold.entry.id} was already settled")
        if hold.fate is Fate.HELD and hold.registration.lost and not hold.sent:
            self._end(hold, Fate.LOST)
        if hold.fate is Fate.LOST:
            raise self._loss(hold)

    def _run_until_reply(self, command: ScriptCall[TurnReply], hold: HeldTask, packed: bytes) -> TurnReply:
        """Repeat the call until there is a reply, or until about the duration of a lease has passed."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_SETTLE_PAUSE_SECONDS)
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return self._run(command)
            except Uncertain:
                hold.sent = packed
                failure: Exception = self._doubt(hold)
            except Unavailable as error:
                failure = self._doubt(hold) if hold.sent else error
                if is_denial(error):
                    raise failure from error
            if self._closed.wait(backoff.next_seconds()) or time.monotonic() > deadline:
                raise failure

    def _end(self, hold: HeldTask, fate: Fate) -> None:
        hold.fate = fate
        self._held.pop(hold.entry.text, None)
        self._changed()

    def _loss(self, hold: HeldTask) -> LeaseLost:
        why = "it was closed" if self._closed.is_set() else "its lease expired"
        return LeaseLost(
            f"this consumer no longer holds task {hold.entry.id}, because {why}: nothing was changed, and the task "
            "runs again"
        )

    def _doubt(self, hold: HeldTask) -> Uncertain:
        task_id = hold.entry.id
        return Uncertain(
            f"the server did not reply to the settlement of task {task_id}, but may have carried it out", [task_id]
        )
