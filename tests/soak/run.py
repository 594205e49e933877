"""One soak from end to end: a server, two nodes behind links that break, producers, the nemesis, the quiet window."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak.act import send
from soak.evidence import SETUP_FILE, Setup, write_whole
from soak.faults import NODES, PRODUCERS
from soak.idle import FleetHoldings, holdings_of
from soak.load import CAPPED, FAIR, ORDER, RATED, TIERS, TOGETHER, WEIGHTS
from soak.nemesis import Nemesis
from soak.node import BEAT_SECONDS, LEASE_SECONDS, TESTS, WORKERS, Node
from soak.plan import Planned
from soak.quiet import be_quiet, leave
from soak.testbed import Testbed
from support.faulty_link import FaultyLink
from support.servers import Server, server_binaries

_MEMORY: Final = Path("/dev/shm")
READY_SECONDS: Final = 60.0
_CLEAR_SECONDS: Final = 70.0  # a producer repeats calls for 50 s
_TICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a run."""

    profile: str
    seconds: float
    seed: int
    server: str
    plan: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a run beside the evidence: what was odd, and what the processes held before it and after it."""

    oddities: list[str]
    at_start: FleetHoldings
    at_end: FleetHoldings


def soak(wanted: Wanted, folder: Path) -> Ran:
    """Run a soak, with the evidence in `folder`."""
    write_whole(folder / SETUP_FILE, setup_of(wanted))
    with _testbed(wanted, folder) as testbed:
        for node in testbed.nodes.values():
            node.start()
        _wait_until_whole(testbed)
        at_start = holdings_of(testbed.nodes.values())
        nemesis = Nemesis(testbed, wanted.seed)
        with _producers(testbed, wanted.seed):
            nemesis.run(wanted.plan, wanted.seconds)
        at_end = be_quiet(testbed, at_start, nemesis.keep_nodes)
        leave(testbed)
        return Ran(testbed.oddities, at_start, at_end)


def setup_of(wanted: Wanted) -> Setup:
    """Return the setup that the checker needs."""
    return Setup(
        seed=wanted.seed,
        profile=wanted.profile,
        workers=WORKERS * len(NODES),
        lease_seconds=LEASE_SECONDS,
        renew_seconds=LEASE_SECONDS / 4,
        beat_seconds=BEAT_SECONDS,
        tiers=TIERS,
        weights=WEIGHTS,
        apart=(CAPPED, RATED, ORDER, TOGETHER),
        order_queue=ORDER,
        together=TOGETHER,
        fair=FAIR,
    )


@contextmanager
def _testbed(wanted: Wanted, folder: Path) -> Iterator[Testbed]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-soak-server-", dir=_in_memory())))
        # Written to disk before each reply: accepted tasks exist after a kill, so the oracle is exact.
        server = Server(server_binaries()[wanted.server], place, appendonly="yes", appendfsync="always").start()
        stack.callback(server.stop)
        links = {target: stack.enter_context(FaultyLink(server.port)) for target in (*NODES, PRODUCERS)}
        testbed = Testbed(folder, server, {name: Node(name, links[name].url, folder / name) for name in NODES}, links)
        stack.callback(_kill_all, testbed)
        yield testbed


def _in_memory() -> Path | None:
    # A killed server loses nothing of it, and its response time does not depend on a disk that others use.
    return _MEMORY if _MEMORY.is_dir() else None


def _kill_all(testbed: Testbed) -> None:
    for node in testbed.nodes.values():
        send(node.processes(), signal.SIGKILL)
        node.left_after(5)


def _wait_until_whole(testbed: Testbed) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not all(node.is_whole() for node in testbed.nodes.values()):
        ended = [name for name, node in testbed.nodes.items() if node.ended_with() is not None]
        if ended or time.monotonic() > deadline:
            raise RuntimeError(f"the nodes do not start: ended {ended}; see fleet.log in {testbed.folder}")
        time.sleep(_TICK_SECONDS)


@contextmanager
def _producers(testbed: Testbed, seed: int) -> Iterator[None]:
    """Run producers for a block: one that no link fault hits, which also sends the ordered calls, and one behind the
    links."""
    urls = {"direct": testbed.server.url, "linked": testbed.links[PRODUCERS].url}
    running = [_produce(testbed.folder, name, url, seed) for name, url in urls.items()]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _wait_for(process, testbed)


def _produce(folder: Path, name: str, url: str, seed: int) -> "subprocess.Popen[bytes]":
    more = ["--the-one"] if name == "direct" else []
    with (folder / f"producer-{name}.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "soak.producer", str(folder), name, url, str(seed), *more],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            stdout=output,
            stderr=output,
        )


def _wait_for(process: "subprocess.Popen[bytes]", testbed: Testbed) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_CLEAR_SECONDS)
    if process.poll() != 0:
        testbed.oddities.append(f"a producer ended with {process.poll()}; see producer-*.txt")
        process.kill()
        process.wait()
