"""`python -m benchmarks.nodes.host URL FIRST COUNT SECONDS`: a process that runs simulated nodes.

It starts COUNT nodes, numbered from FIRST, spread over SECONDS, prints a line, and runs them until its standard input
ends. If a node fails, the process prints the error and exits, because a measurement without that node would be wrong.
"""

import asyncio
import os
import random
import sys
import threading
from typing import Any

from benchmarks.nodes.exporter import SimulatedExporter
from benchmarks.nodes.master import SimulatedMaster
from benchmarks.nodes.poller import simulated_poller
from benchmarks.nodes.settings import POLLERS, SCRAPE_SECONDS, WORKERS, loaded
from benchmarks.nodes.worker import SimulatedWorker
from benchmarks.probe import NAMES
from rota.child.child_process import ChildProcess, StopSignals
from rota.child.slot_memory import SlotMemory
from rota.protocol.store import Store
from rota.server.address import address_of
from rota_supervisor.config import resolution
from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.core.process_settings import poller_settings, worker_settings


class Host:
    """The simulated nodes of this process. They share the memory of one node's slots, because nobody reads it."""

    def __init__(self, url: str) -> None:
        self._loaded = loaded(url)
        self._server = resolution.server_settings(self._loaded.config)
        self._address = address_of(self._server)
        self._memory = SlotMemory.create(RANGES[Role.WORKER][0] + WORKERS)
        self._signals = StopSignals()
        self._death_fd, self._alive_fd = os.pipe()
        self._bell_fd = os.eventfd(0)
        self._nodes: list[Any] = []

    async def start_node(self, name: str) -> None:
        """Start the processes of one node in the order in which a real master starts them. Raises ServerError."""
        config = self._loaded.config
        master = SimulatedMaster(name, self._loaded, NAMES, self._memory)
        owners = await master.register()
        master.start()
        pollers = [self._poller(name, rank) for rank in range(POLLERS)]
        for poller in pollers:
            poller.start()
        [settings] = worker_settings(config).values()
        store = Store(config.namespace)
        workers = [SimulatedWorker(self._address, store, settings, owner) for owner in owners]
        for worker in workers:
            worker.start()
        exporter = SimulatedExporter(self._loaded, self._server, random.uniform(0, SCRAPE_SECONDS))
        exporter.start()
        self._nodes.append((master, pollers, workers, exporter))

    def _poller(self, name: str, rank: int) -> Any:
        number = RANGES[Role.POLLER][rank]
        slot = self._memory.slot(number)
        process = ChildProcess(name, number, slot, 0, "", self._death_fd, self._bell_fd)
        return simulated_poller(self._address, poller_settings(self._loaded.config, rank), process, self._signals)


async def run(url: str, first: int, count: int, seconds: float) -> None:
    """Run the nodes until the standard input ends. Raises the error of a node that fails."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.set_exception_handler(_give_up)
    threading.excepthook = lambda args: _give_up(loop, {"exception": args.exc_value})
    loop.add_reader(sys.stdin.fileno(), ended.set)
    host = Host(url)
    began = loop.time()
    for number in range(count):
        await host.start_node(f"node-{first + number}")
        await asyncio.sleep(began + seconds * (number + 1) / count - loop.time())
    print("ready", flush=True)
    await ended.wait()


def _give_up(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    print(f"a simulated node failed: {context.get('message', '')} {context.get('exception')!r}", flush=True)
    os._exit(1)


def main() -> None:
    """Run the nodes that the arguments describe."""
    url, first, count, seconds = sys.argv[1:]
    asyncio.run(run(url, int(first), int(count), float(seconds)))
    os._exit(0)  # do not wait for the threads of exporters


if __name__ == "__main__":
    main()
