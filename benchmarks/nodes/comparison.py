"""A comparison of a simulated node with a real one: which commands each of them sends in a minute, and what these cost
the server. So the simulation cannot be wrong unnoticed.
"""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import urlopen

import psutil

from benchmarks.measures.monitor import monitored
from benchmarks.nodes.hosts import python_path, simulated_nodes
from benchmarks.nodes.readings import counted, read
from benchmarks.nodes.settings import QUEUE, SCRAPE_SECONDS, WORKERS, environment
from benchmarks.processes import kill_tree
from benchmarks.testbed import Testbed, wait_until
from support.servers import free_port

_START_SECONDS = 40.0
# A grace period of a lease follows the first sweep, and the leader of the fleet scans the keys.
SETTLE_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The commands that a node sent during a time without tasks."""

    commands: Counter[str]  # by name, see `readings.counted`
    cpu_percent: float  # what this cost the server, in percent of one core


def compare(testbed: Testbed, seconds: float) -> tuple[Sent, Sent]:
    """Measure a real node and then a simulated one, each for this time. Return what each of them sent."""
    with real_node(testbed):
        real = _sent(testbed, seconds)
    testbed.client.flushall()
    with simulated_nodes(testbed.url, 1, 0.0):
        return real, _sent(testbed, seconds)


def _sent(testbed: Testbed, seconds: float) -> Sent:
    time.sleep(SETTLE_SECONDS)
    before = read(testbed.client)
    time.sleep(seconds)
    cpu_percent = read(testbed.client).rates_since(before)["cpu_percent"]
    return Sent(counted(monitored(testbed.url, seconds)), cpu_percent)


@contextmanager
def real_node(testbed: Testbed) -> Iterator[None]:
    """Run a real node without tasks, whose exporter is scraped as often as that of a simulated node."""
    port = free_port()
    special = {
        "BENCH_QUEUES": QUEUE,
        "BENCH_TASKS": "benchmarks.probe",
        "ROTA_HTTP__LISTEN": f"127.0.0.1:{port}",
        "ROTA_CONTROL__SOCKET": str(testbed.folder / "control"),
    }
    argv = [sys.executable, "-m", "rota_supervisor", "run", "benchmarks.apps.rota_app"]
    variables = testbed.environment() | python_path() | environment(testbed.url) | special
    process = subprocess.Popen(argv, env=variables, cwd=testbed.folder, stdin=subprocess.DEVNULL)
    ended = threading.Event()
    try:
        wait_until(lambda: _owners(testbed) == WORKERS, "a real node", _START_SECONDS, poll_seconds=0.1)
        threading.Thread(target=_scrape, args=(port, ended), daemon=True).start()
        yield
    finally:
        ended.set()
        kill_tree([psutil.Process(process.pid)], {testbed.server_pid})
        process.wait()


def _owners(testbed: Testbed) -> int:
    return int(testbed.client.zcard("{bench}:owners"))


def _scrape(port: int, ended: threading.Event) -> None:
    while not ended.wait(SCRAPE_SECONDS):
        with urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            reply.read()


def differences(real: Sent, simulated: Sent, seconds: float) -> list[str]:
    """Return the names of the commands of which one node sent far more than the other one: a fifth more, and more than
    3 in a minute."""
    names = real.commands.keys() | simulated.commands.keys()
    spare = 3 * max(1.0, seconds / 60)

    def differ(name: str) -> bool:
        one, other = real.commands[name], simulated.commands[name]
        return abs(one - other) > max(spare, 0.2 * max(one, other))

    return sorted(filter(differ, names))


def table(real: Sent, simulated: Sent, seconds: float) -> str:
    """Return a line for each command: how many of them a real and a simulated node send per minute."""
    lines = [f"{'commands per minute of a node':34}{'real':>8}{'simulated':>11}"]
    names = sorted(real.commands.keys() | simulated.commands.keys(), key=lambda name: -real.commands[name])
    for name in names:
        one, other = (sent.commands[name] * 60 / seconds for sent in (real, simulated))
        lines.append(f"  {name:32}{one:8.1f}{other:11.1f}")
    lines.append(f"  {'server, percent of one core':32}{real.cpu_percent:8.2f}{simulated.cpu_percent:11.2f}")
    return "\n".join(lines)
