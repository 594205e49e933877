"""The number of instructions that a server executes for a task, measured under valgrind.

    PYTHONPATH=tests python -m benchmarks.instructions

One number is for enqueuing a task, and another for claiming and settling a task. On a busy machine, times vary by more
than a typical change to a script saves or costs. Instruction counts vary by only 1 %, because the server does little
besides these calls (`hz 1`). The counts do not show how long the processor waits for memory. `valgrind` must be on the
PATH.
"""

import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import DONE, Settlement, plain_lines
from rota.protocol.store import BATCH, Store
from rota.protocol.tiers import QueueShare, domain_of, pack_limits, pack_tiers
from rota.protocol.turns import Claim, Turn
from rota.protocol.wire import Packed
from rota.server.address import parse_address
from rota.server.connection import Connection, ConnectionOptions
from support.servers import Server, server_binaries

QUEUE = "default"
LIMITS = {"turns of 128": 128, "turns of 1": 1}
TURNS = 200
RUN_RECORD = b" 1795357044555160 12 17128 nothing"
LEASE_MS = 3_600_000
_PATIENCE = ConnectionOptions(read_seconds=120.0)  # in valgrind, a server is fifty times slower


@dataclass(frozen=True, slots=True)
class Bench:
    """A server in valgrind, and one simulated worker."""

    server: Server
    connection: Connection
    store: Store
    tiers: Packed

    def fill(self, count: int) -> None:
        """Enqueue this number of tasks."""
        for first in range(0, count, BATCH):
            tasks = [NewTask(str(uuid.uuid4()), QUEUE, b'["nothing",[]]') for _ in range(min(BATCH, count - first))]
            self.connection.run(self.store.enqueue(uuid.uuid4().hex, tasks))

    def drain(self, owner: str, limit: int) -> None:
        """Claim and settle all waiting tasks, `limit` at a time. Each turn settles the tasks that the previous turn
        claimed."""
        claims = self._turn(owner, limit, ())
        while claims:
            claims = self._turn(owner, limit, claims)

    def _turn(self, owner: str, limit: int, ended: Sequence[Claim]) -> Sequence[Claim]:
        plain = [plain_lines(Settlement(claim.entry, DONE, RUN_RECORD)) for claim in ended]
        turn = Turn(1, limits=pack_limits({QUEUE: limit}), plain=plain)
        return self.connection.run(self.store.turn(owner, self.tiers, turn)).claims

    def enqueue_singly(self, count: int) -> None:
        """Enqueue tasks with one call each. As with a client, the nonces of the calls consist of the same name and a
        counter.
        """
        name = uuid.uuid4().hex
        for number in range(count):
            task = NewTask(str(uuid.uuid4()), QUEUE, b'["nothing",[]]')
            self.connection.run(self.store.enqueue(f"{name} {number}", [task]))

    def turns(self, limit: int) -> int:
        """Return the number of instructions per task while TURNS turns drain the queue."""
        [owner] = self.connection.run(self.store.register(LEASE_MS, ["bench:0"]))
        self.fill(TURNS * limit)
        return self._counted(lambda: self.drain(owner, limit)) // (TURNS * limit)

    def enqueues(self) -> int:
        """Return the number of instructions for enqueuing a task in a queue in which other tasks wait. The queue is
        drained afterwards.
        """
        [owner] = self.connection.run(self.store.register(LEASE_MS, ["bench:0"]))
        self.fill(BATCH)
        found = self._counted(lambda: self.enqueue_singly(TURNS)) // TURNS
        self.drain(owner, BATCH)
        return found

    def _counted(self, act: Callable[[], None]) -> int:
        """Return the number of instructions that the server executes during the call of `act`."""
        self._valgrind("--zero")
        self._valgrind("--instr=on")
        act()
        self._valgrind("--instr=off")
        self._valgrind("--dump")
        return _instructions(self.server.folder)

    def _valgrind(self, order: str) -> None:
        subprocess.run(["callgrind_control", order, str(self.server.pid)], check=True, capture_output=True)


def _instructions(folder: Path) -> int:
    last = max(folder.glob("callgrind.*"), key=lambda path: path.stat().st_mtime_ns)
    [total] = [line.split()[1] for line in last.read_text().splitlines() if line.startswith("totals:")]
    return int(total)


def in_valgrind(binary: str, folder: Path) -> str:
    """Write a program that runs the server in valgrind, and return its path."""
    program = folder / "server-in-valgrind"
    output = f"--callgrind-out-file={folder}/callgrind.%p"
    program.write_text(f'#!/bin/sh\nexec valgrind --tool=callgrind --instr-atstart=no {output} {binary} "$@"\n')
    program.chmod(0o755)
    return str(program)


def measure(kind: str, binary: str, keep: int) -> None:
    """Measure while the server stores the outcomes of the last `keep` ended tasks, and print the results."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(in_valgrind(binary, Path(folder)), Path(folder), hz="1").start()
        try:
            connection = Connection(parse_address(server.url), _PATIENCE)
            bench = Bench(server, connection, Store("bench"), pack_tiers([domain_of([QueueShare(QUEUE)])]))
            connection.run(bench.store.announce("bench", b"{}", LEASE_MS, [QUEUE], Announced(ends=keep)))
            bench.fill(BATCH)
            # The first drain makes the server load the scripts.
            bench.drain(connection.run(bench.store.register(LEASE_MS, ["bench:1"]))[0], 1)
            counts = [f"{bench.turns(limit):,} in {name}" for name, limit in LIMITS.items()]
            counts.append(f"{bench.enqueues():,} in enqueues of 1")
            print(f"{kind}, ended.keep {keep:,}: {', '.join(counts)}")
        finally:
            server.stop()


def main() -> None:
    """Measure with and without stored outcomes of ended tasks."""
    if shutil.which("callgrind_control") is None:
        sys.exit("benchmarks.instructions: valgrind is not on the PATH: install it (apt-get install valgrind)")
    for kind, binary in server_binaries().items():
        for keep in (0, 10_000):
            measure(kind, binary, keep)


if __name__ == "__main__":
    main()
