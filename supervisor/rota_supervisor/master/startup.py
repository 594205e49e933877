"""What is settled before anything is spawned: name, descriptors, slots, sizes."""

import faulthandler
import os
import re
import socket
from pathlib import Path
from typing import Final

from rota.child.slot_memory import SlotMemory
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import SLOTS
from rota_supervisor.master.reload.change import oversized_pools

_STDERR: Final = 2
_HOST_CHARACTERS: Final = 64
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def node_name() -> str:
    """The host's name, and something that no other master's life has: a name is never used twice."""
    host = _STRANGE.sub("-", socket.gethostname())[:_HOST_CHARACTERS] or "host"
    return f"{host}.{os.urandom(4).hex()}"


def keep_to_ourselves() -> None:
    """Mark every descriptor that our parent left open, so that no child inherits it."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _STDERR:
            _close_on_exec(int(entry.name))


def _close_on_exec(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)
    except OSError:  # the descriptor of the listing itself
        return


def show_where_it_ends() -> None:
    """Have the stack written to the log when this process crashes, or when a watchdog ends it by ABRT: the stack
    shows what held up the loop."""
    faulthandler.enable(_STDERR)


def make_slots() -> SlotMemory:
    """The shared memory of the fleet; slot 0 is taken by this process."""
    memory = SlotMemory.create(SLOTS)
    own = memory.slot(0)
    own.begin(1)
    own.enter(1, os.getpid())
    return memory


def check_sizes(config: Config) -> None:
    """Raises Failure 78 for pools that no zygote could be told of."""
    faults = oversized_pools(config)
    if faults:
        raise Failure(ExitCode.CONFIG, *map(str, faults))
