"""`PYTHONPATH=tests python -m benchmarks.nodes`: measures what many nodes without tasks cost their server.

Each simulated node has 16 workers, 2 pollers, and an exporter that is scraped every 15 s. The nodes send exactly the
commands of real nodes, because the product's own code decides what is sent and when; only the processes are missing. At
first, the benchmark compares a simulated node with a real one, and fails if one sends far more commands than the other.
Then it measures several numbers of nodes. The report shows the server's processor time, commands, connections and
memory, how long a scrape takes, and, while tasks are enqueued one by one, how long an enqueue takes.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import rota
from benchmarks.nodes.comparison import SETTLE_SECONDS, compare, differences, table
from benchmarks.nodes.hosts import simulated_nodes
from benchmarks.nodes.readings import Reading, read
from benchmarks.nodes.settings import NAMESPACE, QUEUE, loaded
from benchmarks.numbers import quantile
from benchmarks.processes import adopt_orphans, give_a_processor_to
from benchmarks.testbed import Testbed
from rota.protocol.store import Store
from rota.server.address import address_of
from rota.server.connection import ConnectionOptions, connect
from rota_supervisor.config import resolution
from rota_supervisor.exporter.queue_watch import QueueWatch
from rota_supervisor.exporter.redis_thread import FRESH_SECONDS, RedisThread, connector
from rota_supervisor.master.core.process_settings import exporter_settings
from support.servers import Server, server_binaries

COUNTS: Final = (10, 50, 100, 200, 500)
NODES_A_SECOND: Final = 10  # how many simulated nodes start per second
SCRAPES: Final = 8
ENQUEUES: Final = 300
ENQUEUES_A_SECOND: Final = 15
MOST_CLIENTS: Final = 20_000
MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a number of nodes for their server."""

    nodes: int
    cpu_percent: float  # of one core, without tasks
    commands: float  # per second, including those that scripts call
    scripts: float  # calls of scripts per second
    connections: int
    kilobytes: float  # of the server's memory, for each node
    scrape_ms: float  # median duration of what a scrape reads from the server
    status_ms: float  # median duration of a read of all nodes, as for the status page
    enqueue_p50_ms: float
    enqueue_p99_ms: float
    busy_cpu_percent: float  # of one core, while tasks are enqueued


def main() -> None:
    """Run the measurements, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes")
    parser.add_argument("--server", choices=sorted(server_binaries()), default=min(server_binaries()))
    parser.add_argument("--nodes", default=",".join(map(str, COUNTS)), help="how many nodes, for example 10,100")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each measurement takes; default 20")
    parser.add_argument("--no-comparison", action="store_true", help="do not compare with a real node first")
    wanted = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        server = Server(server_binaries()[wanted.server], Path(name), maxclients=str(MOST_CLIENTS)).start()
        try:
            give_a_processor_to(server.pid)
            testbed = Testbed(server, Path(name))
            if not wanted.no_comparison:
                _compare(testbed, max(60.0, wanted.seconds))
            found = [_measure(testbed, int(count), wanted.seconds) for count in wanted.nodes.split(",")]
            _print_law(found)
        finally:
            server.stop()


def _compare(testbed: Testbed, seconds: float) -> None:
    real, simulated = compare(testbed, seconds)
    print(table(real, simulated, seconds), flush=True)
    if different := differences(real, simulated, seconds):
        sys.exit(f"a simulated node does not send what a real one sends: {', '.join(different)}")


def _measure(testbed: Testbed, nodes: int, seconds: float) -> Measured:
    testbed.client.flushall()
    empty = read(testbed.client)
    with simulated_nodes(testbed.url, nodes, nodes / NODES_A_SECOND):
        time.sleep(SETTLE_SECONDS)
        before = read(testbed.client)
        time.sleep(seconds)
        idle = read(testbed.client)
        scrape_ms, status_ms = _reads_ms(testbed.url)
        enqueues_ms, busy_cpu_percent = _enqueue(testbed)
    found = _measured(nodes, (empty, before, idle), (scrape_ms, status_ms), enqueues_ms, busy_cpu_percent)
    _print_row(found)
    return found


def _measured(
    nodes: int,
    readings: tuple[Reading, Reading, Reading],
    reads_ms: tuple[float, float],
    enqueues_ms: Sequence[float],
    busy_cpu_percent: float,
) -> Measured:
    empty, before, idle = readings
    return Measured(
        nodes=nodes,
        **idle.rates_since(before),
        connections=idle.clients - empty.clients,
        kilobytes=(idle.memory_bytes - empty.memory_bytes) / nodes / 1024,
        scrape_ms=reads_ms[0],
        status_ms=reads_ms[1],
        enqueue_p50_ms=quantile(enqueues_ms, 0.5),
        enqueue_p99_ms=quantile(enqueues_ms, 0.99),
        busy_cpu_percent=busy_cpu_percent,
    )


def _reads_ms(url: str) -> tuple[float, float]:
    """Return the median durations of what a scrape and the status page read, in milliseconds."""
    config = loaded(url).config
    server = resolution.server_settings(config)
    watch = QueueWatch(exporter_settings(config), RedisThread(connector(server)))
    connection = connect(address_of(server), ConnectionOptions("rota-bench"))
    nodes = Store(config.namespace).nodes()
    scrapes: list[float] = []
    statuses: list[float] = []
    for _ in range(SCRAPES):
        scrapes.append(_timed_ms(watch.read))
        statuses.append(_timed_ms(lambda: connection.run(nodes)))
        time.sleep(FRESH_SECONDS)
    connection.close()
    return statistics.median(scrapes[1:]), statistics.median(statuses[1:])  # the first ones connect and load scripts


def _timed_ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * MILLISECONDS


def _enqueue(testbed: Testbed) -> tuple[list[float], float]:
    """Enqueue tasks one by one, which the simulated workers run. Return how long each enqueue took in milliseconds, and
    the server's processor time in percent of one core."""
    client = rota.Client(testbed.url, NAMESPACE)
    took: list[float] = []
    before = read(testbed.client)
    for _ in range(ENQUEUES):
        took.append(_timed_ms(lambda: client.enqueue("nothing", queue=QUEUE)))
        time.sleep(1 / ENQUEUES_A_SECOND)
    return took, read(testbed.client).rates_since(before)["cpu_percent"]


def _print_row(found: Measured) -> None:
    print(
        f"{found.nodes} nodes: {found.cpu_percent:.2f} % of a core, {found.commands:,.0f} commands/s, "
        f"{found.scripts:,.0f} scripts/s, {found.connections:,} connections, {found.kilobytes:.1f} kB per node; "
        f"scrape {found.scrape_ms:.2f} ms, nodes {found.status_ms:.2f} ms; enqueue p50 {found.enqueue_p50_ms:.2f}, "
        f"p99 {found.enqueue_p99_ms:.2f} ms, meanwhile {found.busy_cpu_percent:.2f} %",
        flush=True,
    )


def _print_law(found: Sequence[Measured]) -> None:
    if len(found) > 1:
        counts = [each.nodes for each in found]
        slope, intercept = statistics.linear_regression(counts, [each.cpu_percent for each in found])
        print(f"percent of a core = {intercept:.2f} + {slope:.4f} x nodes")


if __name__ == "__main__":
    main()
