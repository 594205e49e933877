"""The client with the connections it keeps, beside redis-py's pool alone: tasks a second, singly, in pairs of runs.

    PYTHONPATH=tests python -m benchmarks.client_pool

The two of a pair run one after the other on one server, their order turned with each pair. What was found, and what
follows from it, is in docs/adr/0020-the-clients-own-pool.md.
"""

import statistics
import tempfile
import threading
import time
from pathlib import Path

import redis

from rota.client.call import Call
from rota.client.client import Client
from rota.client.pool import ClientPool
from servers import Server, server_binaries

PAIRS = 5
THREADS = (1, 8)
TASKS = 6000
REPEATS = 3  # of which the median counts: one thread is bimodal, by whether it shares a processor with the server


class Returned(list[redis.Connection]):
    """In place of the kept connections: what comes goes back to redis-py's pool."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        super().__init__()
        self._pool = pool

    def append(self, connection: redis.Connection) -> None:
        self._pool.release(connection)


class Redispy(ClientPool):
    """The client's pool without what it keeps itself."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        super().__init__(url, timeout_seconds)
        self._kept = Returned(self._pool)


def rate(url: str, pool: type[ClientPool], threads: int) -> float:
    """Tasks a second of so many threads with one client."""
    with Client(url, "bench") as client:
        client._sender._pool = client._pool = pool(url, 5.0)  # noqa: SLF001 - that is what is compared
        client.enqueue(Call("nothing", queue="q"))

        def work() -> None:
            for _ in range(TASKS // threads):
                client.enqueue(Call("nothing", [7], queue="q"))

        running = [threading.Thread(target=work) for _ in range(threads)]
        began = time.perf_counter()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return TASKS / (time.perf_counter() - began)


def main() -> None:
    """Print the rates of all pairs."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(server_binaries()["valkey"], Path(folder)).start()
        emptied = redis.Redis(port=server.port)
        for threads in THREADS:
            for number in range(PAIRS):
                emptied.flushall()
                pools = [ClientPool, Redispy] if number % 2 else [Redispy, ClientPool]
                found = {
                    pool: statistics.median(rate(server.url, pool, threads) for _ in range(REPEATS)) for pool in pools
                }
                kept, alone = found[ClientPool], found[Redispy]
                print(f"{threads} threads: kept {kept:6.0f}/s, redis-py alone {alone:6.0f}/s, ratio {kept / alone:.2f}")
        server.stop()


if __name__ == "__main__":
    main()
