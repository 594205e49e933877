"""Drain and enqueue of a Rota fleet against the classic BLPOP loop: `make bench`.

Both run on one server, with as many worker processes, in turns, so that what else the machine does meets both.
What counts is the ratio within a round; the rates depend on the machine.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

import rota
from benchmarks import classic, fleet
from rota.server.connection import Connection
from servers import Server, server_binaries

BATCH = 100
WARM_UP_TASKS = 500


@dataclass(frozen=True, slots=True)
class Comparison:
    """One round of one measurement: seconds of either side for the same number of tasks."""

    name: str
    tasks: int
    classic_seconds: float
    rota_seconds: float

    @property
    def ratio(self) -> float:
        """How many tasks Rota does while the classic loop does one."""
        return self.classic_seconds / self.rota_seconds


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Bench:
    """What a round needs: both clients, and a look at the running fleet."""

    url: str
    workers: int
    plain: "redis.Redis"
    client: rota.Client
    connection: Connection

    def round(self, tasks: int) -> Iterator[Comparison]:
        """Measure everything once, the classic side first."""
        yield Comparison(
            "drain",
            tasks,
            classic.drain_seconds(self.plain, self.url, tasks, self.workers),
            fleet.drain_seconds(self.connection, self.client, tasks),
        )
        yield self._enqueue("enqueue, one a call", tasks // 5, self._each)
        yield self._enqueue(f"enqueue, {BATCH} a call", tasks, self._many)

    def _enqueue(self, name: str, tasks: int, sides: "Callable[[int], tuple[float, float]]") -> Comparison:
        self.connection.run(fleet.PAUSE)
        self.plain.delete(classic.QUEUE)
        compared = Comparison(name, tasks, *sides(tasks))
        self.connection.run(fleet.RESUME)
        fleet.wait_until_idle(self.connection)
        return compared

    def _each(self, tasks: int) -> tuple[float, float]:
        return (
            _timed(lambda: classic.enqueue_each(self.plain, tasks)),
            _timed(lambda: fleet.enqueue_each(self.client, tasks)),
        )

    def _many(self, tasks: int) -> tuple[float, float]:
        return (
            _timed(lambda: classic.enqueue_many(self.plain, tasks, BATCH)),
            _timed(lambda: fleet.enqueue_many(self.client, tasks, BATCH)),
        )


def report(compared: Sequence[Comparison]) -> str:
    """A table with a line a measurement: median rates, and the median and range of the ratio."""
    lines = [f"{'':24}{'classic/s':>12}{'rota/s':>12}{'ratio':>8}  (lowest to highest)"]
    for name in dict.fromkeys(one.name for one in compared):
        rounds = [one for one in compared if one.name == name]
        plain = statistics.median(one.tasks / one.classic_seconds for one in rounds)
        ours = statistics.median(one.tasks / one.rota_seconds for one in rounds)
        ratios = sorted(one.ratio for one in rounds)
        middle = statistics.median(ratios)
        lines.append(f"{name:24}{plain:12,.0f}{ours:12,.0f}{middle:8.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="worker processes of either side")
    parser.add_argument("--server", choices=sorted(server_binaries()), default="valkey")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    wanted = _arguments()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        folder = Path(name)
        server = Server(server_binaries()[wanted.server], folder).start()
        try:
            print(report(list(_measure(server.url, folder, wanted))))
        finally:
            server.stop()


def _measure(url: str, folder: Path, wanted: argparse.Namespace) -> Iterator[Comparison]:
    with (
        redis.Redis.from_url(url, socket_timeout=None) as plain,
        rota.Client(url, namespace=fleet.NAMESPACE) as client,
        fleet.running(url, wanted.workers, folder) as connection,
    ):
        bench = Bench(url, wanted.workers, plain, client, connection)
        list(bench.round(WARM_UP_TASKS))
        for number in range(1, wanted.rounds + 1):
            print(f"round {number} of {wanted.rounds}", flush=True)
            yield from bench.round(wanted.tasks)


if __name__ == "__main__":
    main()
