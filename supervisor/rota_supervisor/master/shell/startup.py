"""What is settled before anything is spawned: name, descriptors, slots, sizes."""

import os
import re
import resource
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from rota.child.slot_layout import REGION_BYTES
from rota.child.slot_memory import SlotMemory
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import SLOTS
from rota_supervisor.master.core.change import oversized_pools


class LimitNeed(NamedTuple):
    """How much of a limited thing a fleet needs at least, and where people set the limit."""

    what: str
    least: int
    where: str
    unit: str = "MB"
    size: int = 1 << 20


_SHARED_MB: Final = SLOTS * REGION_BYTES >> 20
NEEDED: Final = {
    # A master of 500 workers has 26, and one for each child's stacks as long as there are some left.
    resource.RLIMIT_NOFILE: LimitNeed("open files", 64, "ulimit -n, LimitNOFILE= of systemd", "descriptors", 1),
    # The shared memory is mapped as a whole, and takes real memory only where it is written. The rest is for Python.
    resource.RLIMIT_AS: LimitNeed("address space", _SHARED_MB + 256, "ulimit -v, LimitAS= of systemd"),
    resource.RLIMIT_FSIZE: LimitNeed("the size of files", _SHARED_MB, "ulimit -f, LimitFSIZE= of systemd"),
}
_HOST_CHARACTERS: Final = 64
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def node_name() -> str:
    """The host's name, and something that no other master's life has: a name is never used twice."""
    host = _STRANGE.sub("-", socket.gethostname())[:_HOST_CHARACTERS] or "host"
    return f"{host}.{os.urandom(4).hex()}"


def make_slots() -> SlotMemory:
    """The shared memory of the fleet; slot 0 is taken by this process."""
    memory = SlotMemory.create(SLOTS)
    own = memory.slot(0)
    own.begin(1)
    own.enter(1, os.getpid())
    return memory


def check_sizes(config: Config) -> None:
    """Raises Failure 78 for pools whose settings fit into no message, and for limits that leave a master no room."""
    limits = {limit: resource.getrlimit(limit)[0] for limit in NEEDED}
    faults = [*map(str, oversized_pools(config)), *faults_of_limits(limits)]
    if faults:
        raise Failure(ExitCode.CONFIG, *faults)


def faults_of_limits(limits: Mapping[int, int]) -> list[str]:
    """What is wrong with the limits of this process. `limits`: the soft ones, by number."""
    return [
        f"the limit on {need.what} is {limits[limit] // need.size} {need.unit}, and a fleet needs {need.least}: "
        f"raise it ({need.where}), or lift it"
        for limit, need in NEEDED.items()
        if limits[limit] != resource.RLIM_INFINITY and limits[limit] < need.least * need.size
    ]
