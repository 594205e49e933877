"""One soak from start to end: a server, nodes behind faulty links, producers, the nemesis, and the quiet window."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak.act import send
from soak.evidence import SETUP_FILE, Setup, write_whole
from soak.faults import KINDS, PRODUCERS, FaultScope, has_hosts, is_in_cluster, nodes_of
from soak.idle import FleetHoldings, holdings_of
from soak.load import CAPPED, FAIR, ORDER, RATED, TIERS, TOGETHER, WEIGHTS
from soak.nemesis import Nemesis
from soak.node import BEAT_SECONDS, LEASE_SECONDS, TESTS, WORKERS, Node
from soak.plan import Planned
from soak.quiet import be_quiet, leave
from soak.testbed import Testbed
from support.clusters import Cluster
from support.earlier_version import unpack_earlier_version
from support.faulty_link import FaultyLink
from support.hosts import SERVER_ADDRESS, hosts
from support.servers import Server, server_binaries

_MEMORY: Final = Path("/dev/shm")
READY_SECONDS: Final = 60.0
_CLEAR_SECONDS: Final = 70.0  # longer than the 50 s for which a producer repeats its calls
_TICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a soak, with its plan of faults."""

    profile: str
    seconds: float
    seed: int
    server: str
    plan: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a soak that are not in its evidence: oddities, and the holdings of the processes at the start and
    at the end.
    """

    oddities: list[str]
    at_start: FleetHoldings
    at_end: FleetHoldings


def soak(wanted: Wanted, folder: Path) -> Ran:
    """Run a soak that writes its evidence to `folder`."""
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
    """Return the configuration of the fleet, as far as the checker needs it."""
    return Setup(
        seed=wanted.seed,
        profile=wanted.profile,
        workers=WORKERS * len(nodes_of(wanted.profile)),
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
        names = nodes_of(wanted.profile)
        on_hosts = stack.enter_context(hosts(names)) if has_hosts(wanted.profile) else {}
        server = _start_server(wanted, stack, reached_by_hosts=bool(on_hosts))
        if isinstance(server, Cluster):
            links: dict[str, FaultyLink] = {}
            urls = dict.fromkeys(names, server.url)
        else:
            behind_links = [name for name in names if name not in on_hosts]
            links = {target: stack.enter_context(FaultyLink(server.port)) for target in (*behind_links, PRODUCERS)}
            urls = dict.fromkeys(on_hosts, server.url_at(SERVER_ADDRESS))
            urls |= {name: links[name].url for name in behind_links}
        earlier = _earlier_version(wanted, stack)
        nodes = {
            name: Node(name, urls[name], folder / name, host=on_hosts.get(name), earlier=earlier) for name in names
        }
        testbed = Testbed(folder, server, nodes, links)
        stack.callback(_kill_all, testbed)
        yield testbed


def _start_server(wanted: Wanted, stack: ExitStack, *, reached_by_hosts: bool) -> Server | Cluster:
    # The server writes all data to disk before each reply, so accepted tasks survive a kill. The checker can therefore
    # be exact.
    options = {"appendonly": "yes", "appendfsync": "always", "protected_mode": "no"}
    binary, folder = server_binaries()[wanted.server], _folder(stack, "server")
    if is_in_cluster(wanted.profile):
        return stack.enter_context(Cluster(binary, folder, **options))
    server = Server(binary, folder, **options)
    server.addresses += [SERVER_ADDRESS] if reached_by_hosts else []
    stack.callback(server.stop)
    return server.start()


def _earlier_version(wanted: Wanted, stack: ExitStack) -> Sequence[Path]:
    """Return the source roots of the earlier version with which the nodes start, or an empty sequence if the plan
    changes no versions.
    """
    is_needed = any(KINDS[planned.fault].scope is FaultScope.VERSION for planned in wanted.plan)
    return unpack_earlier_version(_folder(stack, "earlier")) if is_needed else ()


def _folder(stack: ExitStack, purpose: str) -> Path:
    # The folder is in memory. A killed server does not lose the data in it, and the response times do not depend on a
    # shared disk.
    place = _MEMORY if _MEMORY.is_dir() else None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"rota-soak-{purpose}-", dir=place)))


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
    """Run two producers during a `with` block. If there are links, one producer is behind a link, so faults of links
    affect it. The other producer connects directly, and also sends the calls whose order is checked.
    """
    links = testbed.links
    urls = {"direct": testbed.server.url, "linked": links[PRODUCERS].url if links else testbed.server.url}
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
