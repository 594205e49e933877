"""Waits that end at a given time, on an idle server. An idle server checks its timers only every 0.1 s."""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rota.child.child_process import StopSignals, Waiter
from rota.child.slots import boottime_ns
from rota.client.consumer.consumer import Doorbells
from rota.client.timed_connections import Wakeup
from rota.protocol.keys import Keys
from rota.protocol.store import Store
from rota.protocol.tiers import QueueShare, domain_of
from rota.protocol.turns import Turn
from rota.server.address import parse_address
from rota.server.connection import Connection
from rota.worker.doorbells import Bell
from support.protocol import one_tier
from support.servers import Server

SECONDS: Final = [0.101, 0.123, 0.144, 0.167, 0.182, 0.205, 0.227, 0.241, 0.266]
# The limit for the median lateness. If waits ended only when the server checks its timers, the median would be about
# 0.05 s.
MOST_LATE_SECONDS: Final = 0.025


@pytest.fixture
def quiet(server: Server, tmp_path: Path) -> Iterator[Server]:
    """Yield a separate server, which checks its timers at the default frequency."""
    folder = tmp_path / "quiet"
    folder.mkdir()
    made = Server(server.binary, folder, hz="10").start()
    yield made
    made.stop()


@pytest.fixture
def connection(quiet: Server) -> Iterator[Connection]:
    made = Connection(parse_address(quiet.url))
    yield made
    made.close()


def test_a_sleeping_worker_wakes_at_the_requested_time_on_a_quiet_server(connection: Connection) -> None:
    store, (death_fd, master_fd) = Store("n"), os.pipe()
    waiter = Waiter(StopSignals(), death_fd, lambda: None, 1.0)
    bell = Bell(store.keys, (domain_of([QueueShare("q")]),), 30.0, boottime_ns)
    turn = store.turn("nobody", one_tier("q"), Turn(1))
    connection.run(turn)  # afterwards, the server knows the script
    late = []
    for seconds in SECONDS:
        began = time.monotonic()
        heard = bell.listen(connection, waiter, seconds, turn)
        late.append(time.monotonic() - began - seconds)
        assert heard is not None
        assert heard.queue == ""
    os.close(death_fd)
    os.close(master_fd)
    assert statistics.median(late) < MOST_LATE_SECONDS


def test_a_sleeping_consumer_wakes_at_the_requested_time_on_a_quiet_server(connection: Connection) -> None:
    bells, wakeup = Doorbells(Keys("n"), ["q"]), Wakeup()
    late = []
    for seconds in SECONDS:
        began = time.monotonic()
        assert bells.listen(connection, seconds, wakeup, lambda: False) == ""
        late.append(time.monotonic() - began - seconds)
    wakeup.close()
    assert statistics.median(late) < MOST_LATE_SECONDS
