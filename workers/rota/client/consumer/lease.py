"""A consumer as an owner: registered, renewed by a thread, registered anew after its lease was lost, retired."""

import logging
import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from rota.durations import Duration, seconds
from rota.errors import Unavailable, Uncertain
from rota.options import check_queue
from rota.protocol.store import BATCH, Blame, Command, Store
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.wire import Packed

T = TypeVar("T")

LOG = logging.getLogger("rota.consumer")
_SHORTEST_SECONDS: Final = 1.0
_RENEWALS_A_LEASE: Final = 4
_AGAIN_SECONDS: Final = 1.0
_HOST_CHARACTERS: Final = 60
_TRIES_TO_RETIRE: Final = 2


class Run(Protocol):
    """Sends a command, once. May be called from any thread. Raises Unavailable or Uncertain."""

    def __call__(self, command: Command[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What a consumer takes: at most `limit` tasks at a time of these queues, bodies of at most `most_bytes`."""

    queues: tuple[str, ...]
    limit: int
    lease_seconds: float
    most_bytes: int


def terms_of(queues: tuple[str, ...], limit: int, lease_seconds: Duration, most_bytes: int) -> Terms:
    """Check what a consumer is asked to take. Raises InvalidName, TypeError or ValueError."""
    for queue in queues:
        check_queue(queue)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit must be a whole number, got {limit!r}")
    if not 1 <= limit <= BATCH:
        raise ValueError(f"limit must be from 1 to {BATCH}, got {limit}")
    lease = seconds(lease_seconds, "lease_seconds")
    if lease < _SHORTEST_SECONDS:
        raise ValueError(f"lease_seconds must be at least {_SHORTEST_SECONDS:g}, got {lease_seconds!r}")
    return Terms(tuple(dict.fromkeys(queues)), limit, lease, most_bytes)


class Life:
    """One life as an owner, until its lease is lost. `tiers` in wire form."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tiers: Packed
        self.cancelled: frozenset[str] = frozenset()
        self.lost = False


class Lease:
    """The lives of one consumer, one after another. `lost` is called when a renewal finds the lease lost."""

    def __init__(self, store: Store, run: Run, terms: Terms, lost: Callable[[], None]) -> None:
        """Begins the first life. Raises Unavailable or Uncertain."""
        self.place = _place()
        self._store = store
        self._run = run
        self._terms = terms
        self._lost = lost
        self._lease_ms = round(terms.lease_seconds * 1000)
        self._over = threading.Event()
        self.life = self._begin()
        threading.Thread(target=self._keep, name="rota-consumer", daemon=True).start()

    def begin_anew(self) -> None:
        """Begin another life. Raises Unavailable or Uncertain."""
        self.life = self._begin()

    def end(self, owed: Packed) -> None:
        """Retire, with outcomes that may not have reached the server. What is held goes back to its lanes."""
        self._over.set()
        call = self._store.retire_exited(self.life.owner, Blame(), owed, self.life.tiers)
        for _ in range(_TRIES_TO_RETIRE):
            try:
                self._run(call)
            except (Unavailable, Uncertain) as error:
                LOG.warning("what %s holds goes back when its lease has run out: %s", self.life.owner, error)
            else:
                return

    def _begin(self) -> Life:
        life = Life(self._run(self._store.register(self._lease_ms, [self.place]))[0])
        self._attend(life)
        return life

    def _attend(self, life: Life) -> None:
        told = self._run(self._store.attend(self._lease_ms, life.owner, self._terms.queues))
        shares = told.shares if told.registered else tuple(map(QueueShare, self._terms.queues))
        life.tiers = pack_tiers([domain_of(shares)])
        life.cancelled = told.cancelled
        if not told.registered and not life.lost:
            life.lost = True
            LOG.warning("the lease of %s was lost: what it held runs again", life.owner)
            self._lost()

    def _keep(self) -> None:
        usual = pause = self._terms.lease_seconds / _RENEWALS_A_LEASE
        while not self._over.wait(pause):
            try:
                self._attend(self.life)
                pause = usual
            except (Unavailable, Uncertain) as error:
                if pause == usual:  # the first of several
                    LOG.warning("the lease of %s was not renewed: %s", self.life.owner, error)
                pause = min(_AGAIN_SECONDS, usual / 2)


def _place() -> str:
    """Where its owners live, in the form of a worker's: a node, which is this process, and a slot."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:_HOST_CHARACTERS]
    return f"consumer-{host}-{os.getpid()}-{os.urandom(4).hex()}:0"
