"""A real fleet, started by `rota run`, that drains the queue `bench`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rota
from benchmarks.clock import wait_until
from benchmarks.noop import nothing
from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.connection import Connection

NAMESPACE = "bench"
STOP_SECONDS = 60.0
_STORE = Store(NAMESPACE)
PAUSE = _STORE.pause("bench")
RESUME = _STORE.resume("bench")
_ROTA = str(Path(sys.executable).parent / "rota")


def enqueue_each(client: rota.Client, count: int) -> None:
    """One call a task."""
    for number in range(count):
        nothing.using(client=client).enqueue(number)


def enqueue_many(client: rota.Client, count: int, batch: int) -> None:
    """One call a batch of tasks."""
    for start in range(0, count, batch):
        client.enqueue_many([nothing.call(number) for number in range(start, min(start + batch, count))])


def drain_seconds(connection: Connection, client: rota.Client, count: int) -> float:
    """How long the running fleet takes over `count` waiting tasks: started, settled and counted."""
    connection.run(PAUSE)
    goal = _done(connection) + count
    enqueue_many(client, count, batch=500)
    started = time.perf_counter()
    connection.run(RESUME)
    wait_until(lambda: _done(connection) == goal)
    return time.perf_counter() - started


def _done(connection: Connection) -> int:
    return int(connection.execute("HGET", _STORE.keys.totals, "done") or 0)


def wait_until_idle(connection: Connection) -> None:
    """Wait until everything accepted has ended."""
    wait_until(lambda: connection.run(_STORE.audit()).live == 0)


@contextmanager
def running(url: str, workers: int, folder: Path) -> Iterator[Connection]:
    """A fleet of `workers`, and a connection to look at what it does."""
    env = os.environ | {
        "ROTA_NAMESPACE": NAMESPACE,
        "ROTA_REDIS_URL": url,
        "ROTA_TIERS": '[["bench"]]',
        "ROTA_HTTP__LISTEN": "",
        "ROTA_LOG__LEVEL": "warning",
        "ROTA_CONTROL__SOCKET": str(folder / "control"),
    }
    with subprocess.Popen([_ROTA, "run", "-w", str(workers), "benchmarks.noop"], env=env) as fleet:
        try:
            connection = Connection(parse_address(url))
            wait_until(lambda: connection.run(_STORE.overview(())).owners == workers)
            yield connection
            connection.close()
        finally:
            fleet.send_signal(signal.SIGTERM)
            fleet.wait(STOP_SECONDS)
