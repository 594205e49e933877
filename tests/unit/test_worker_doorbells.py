"""The long wait of a worker at its doorbells, which ends early only if the server does not reply."""

from typing import Any, cast

import pytest

from rota.child.child_process import Waiter, Woken
from rota.durations import NANOSECONDS
from rota.protocol.keys import Keys
from rota.protocol.store import Store
from rota.protocol.tiers import NO_TIERS
from rota.protocol.turns import Turn
from rota.server.connection import GRACE_SECONDS, LONG_PARK_SECONDS, PARK_SECONDS, Connection
from rota.server.server_errors import ConnectionLost
from rota.server.session import NO_REPLY
from rota.worker import doorbells
from rota.worker.doorbells import Bell

SILENT_SECONDS = PARK_SECONDS + GRACE_SECONDS
TURN = Store("n").turn("owner", NO_TIERS, Turn(1))
ANSWERS = [None, [b"ok", 0, 0, [], [], []]]


class World:
    """A simulation of time, which passes while the worker waits. It replaces the wait, the connection and the master.
    The connection gets a reply at `answered_at`. The master renews the lease every `renew_seconds` until `silent_at`.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.renew_seconds = float(PARK_SECONDS)
        self.silent_at = self.answered_at = float("inf")
        self.answers = list(ANSWERS)
        self.waits = 0

    def last_reply_ns(self) -> int:
        return round(min(self.now, self.silent_at) // self.renew_seconds * self.renew_seconds * NANOSECONDS)

    def until_woken(self, _fd: int, seconds: float) -> Woken:
        self.waits += 1
        self.now = min(self.now + seconds, max(self.now, self.answered_at))
        return Woken.READY if self.now >= self.answered_at else Woken.TIMEOUT

    def fileno(self) -> int:
        return 0

    def send(self, data: bytes) -> None: ...

    def try_receive(self) -> Any:
        return self.answers.pop(0) if self.now >= self.answered_at else NO_REPLY

    def receive(self) -> Any:
        return self.answers.pop(0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(doorbells, "boottime_ns", lambda: round(made.now * NANOSECONDS))
    return made


def listen(world: World) -> float:
    """Wait at the doorbells for as long as possible, and return the length of the wait in seconds."""
    began = world.now
    listening = Bell(Keys("n"), (), LONG_PARK_SECONDS, world.last_reply_ns)
    listening.listen(cast(Connection, world), cast(Waiter, world), LONG_PARK_SECONDS, TURN)
    return world.now - began


def test_a_worker_keeps_waiting_while_redis_replies_to_the_master(world: World) -> None:
    world.answered_at = world.now + LONG_PARK_SECONDS
    assert listen(world) == LONG_PARK_SECONDS
    # The worker checks its lease at most as often as the master renews the lease.
    assert world.waits <= 1 + LONG_PARK_SECONDS / PARK_SECONDS


def test_a_workers_wait_ends_if_redis_replies_to_neither_worker_nor_master(world: World) -> None:
    # The master's last renewal was long ago, but the worker's own connection has just got a reply.
    world.now += PARK_SECONDS - 0.001
    world.silent_at = began = world.now
    with pytest.raises(ConnectionLost, match="8 s"):
        listen(world)
    assert world.now - began == pytest.approx(SILENT_SECONDS)


def test_a_workers_wait_ends_soon_after_redis_stops_replying(world: World) -> None:
    world.silent_at = world.now + 2 * PARK_SECONDS + 1
    with pytest.raises(ConnectionLost):
        listen(world)
    assert world.now - world.silent_at <= SILENT_SECONDS


def test_a_workers_overdue_wait_ends_despite_replies_to_the_master(world: World) -> None:
    began = world.now
    with pytest.raises(ConnectionLost):
        listen(world)
    assert world.now - began == pytest.approx(LONG_PARK_SECONDS + GRACE_SECONDS)
