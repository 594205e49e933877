"""A cluster whose primary is on another host, `python -m support.partition FOLDER NAMESPACE`.

The host is cut off from the other nodes for a while, together with two producers on it, and comes back. The fleet and a
third producer are on the side of the other nodes. The program prints a `Partition` as JSON. It needs root, because the
host is a network namespace.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.clusters import NODE_TIMEOUT_SECONDS, Cluster
from support.fleets import RunningFleet
from support.growing_files import whole_lines
from support.hosts import SERVER_ADDRESS, Host, hosts
from support.server_fixtures import Producer, extra_runs
from support.servers import Server, server_binaries
from support.waiting import until

_FAR_ADDRESS: Final = "10.117.0.2"  # the address of the first host
_FAR: Final = 0  # the number of the node on the other host
_CUT_SECONDS: Final = 4 * NODE_TIMEOUT_SECONDS
_SOME: Final = 50


@dataclass(frozen=True, slots=True)
class Partition:
    """The results. A task is lost if it was acknowledged and has not run at the end."""

    lost_near: list[str]  # of the producer beside the fleet, with durability "wait"
    lost_far: list[str]  # of the producer on the other host, with durability "wait"
    lost_unconfirmed: dict[
        str, float
    ]  # of the producer on the other host, with durability "none": seconds since the cut
    repeats: int  # the largest number of additional starts of a task
    is_replica: bool  # whether the old primary is a replica at the end
    is_balanced: bool  # whether the audit finds no fault


class _SplitCluster(Cluster):
    """A cluster with one node on another host."""

    def __init__(self, binary: str, folder: Path, far: Host) -> None:
        super().__init__(binary, folder, protected_mode="no")
        self._far = far

    def _make_node(self, number: int) -> Server:
        node = super()._make_node(number)
        node.addresses = [_FAR_ADDRESS if number == _FAR else SERVER_ADDRESS]
        node.prefix = self._far.prefix if number == _FAR else []
        return node


class _FarProducer:
    """A producer process on the other host. Each line of its file is the id of an acknowledged task and the time."""

    def __init__(self, far: Host, file: Path, url: str, namespace: str, durability: str) -> None:
        self._file = file
        program = [sys.executable, "-c", _PROGRAM, url, namespace, durability]
        with file.open("wb") as output:
            self._process = subprocess.Popen([*far.prefix, *program], stdout=output)

    @property
    def accepted(self) -> dict[str, float]:
        """The acknowledged tasks, with the time by CLOCK_MONOTONIC."""
        return {task: float(at) for task, at in (line.decode().split() for line in whole_lines(self._file))}

    def stop(self) -> None:
        """Wait until the producer has resolved its last doubt, and end it."""
        self._process.terminate()
        self._process.wait(60)


_PROGRAM: Final = """
import signal, sys, time
import rota
url, namespace, durability = sys.argv[1:]
goes_on = True
def stop(*_):
    global goes_on
    goes_on = False
signal.signal(signal.SIGTERM, stop)
with rota.Client(url, namespace, durability=durability, timeout_seconds=2) as client:
    doubt = None
    while goes_on or doubt:
        try:
            handles = doubt.repeat() if doubt else [client.enqueue("note", queue="default")]
        except rota.Uncertain as error:
            doubt = error if durability != "none" else None
        except rota.Unavailable:
            pass
        else:
            doubt = None
            for handle in handles:
                print(handle.id, time.monotonic(), flush=True)
        time.sleep(0.01)
"""


def run(folder: Path, namespace: str) -> Partition:
    """Run the partition in this process, which must have only one thread."""
    with ExitStack() as stack:
        far = stack.enter_context(hosts(["far"]))["far"]
        cluster = stack.enter_context(_SplitCluster(server_binaries()["valkey"], folder / "cluster", far))
        if cluster.owner_of(namespace) is not cluster.nodes[_FAR]:
            raise ValueError(f"the namespace {namespace} is not on the other host")
        fleet = stack.enter_context(_fleet(cluster, namespace, folder))
        unconfirmed, confirmed = (
            _FarProducer(far, folder / level, cluster.url, namespace, level) for level in ("none", "wait")
        )
        with Producer(cluster.url, namespace, patience_seconds=30, timeout_seconds=3, durability="wait") as near:
            until(
                lambda: min(len(each.accepted) for each in (near, unconfirmed, confirmed)) > _SOME,
                "work of all producers",
            )
            cut_at = time.monotonic()
            _cut(far, cluster, namespace)
            near.wait_for(_SOME)
        for each in (unconfirmed, confirmed):
            each.stop()
        fleet.wait_until_nothing_waits(60)
        ran = {line.id for line in fleet.journal("end")}
        return Partition(
            lost_near=sorted(near.accepted.keys() - ran),
            lost_far=sorted(confirmed.accepted.keys() - ran),
            lost_unconfirmed={task: at - cut_at for task, at in unconfirmed.accepted.items() if task not in ran},
            repeats=max(extra_runs(fleet).values(), default=0),
            is_replica=cluster.role_of(cluster.nodes[_FAR]) == "slave",
            is_balanced=until(fleet.books_balance, "balanced books"),
        )


def _cut(far: Host, cluster: Cluster, namespace: str) -> None:
    """Cut the other host off for longer than it takes both sides to notice it, and wait until its node is a replica."""
    old = cluster.nodes[_FAR]
    ends_at = time.monotonic() + _CUT_SECONDS
    far.unplug()
    cluster.wait_for_another(old, namespace)
    time.sleep(max(0.0, ends_at - time.monotonic()))
    far.plug()
    until(lambda: cluster.role_of(old) == "slave", "the old primary as a replica", 60)


@contextmanager
def _fleet(cluster: Cluster, namespace: str, folder: Path) -> Iterator[RunningFleet]:
    (folder / "fleet").mkdir()
    fleet = RunningFleet(cluster.url, namespace, folder / "fleet", workers=3)
    try:
        yield fleet.start()
    finally:
        fleet.close()


if __name__ == "__main__":
    found = run(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.write(json.dumps(dataclasses.asdict(found)))
