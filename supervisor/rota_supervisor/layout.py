"""The constants that the master and its children must share before they can communicate: the slots of each role, the
heartbeat interval, descriptors, and the environment variable that marks the processes of a task.

A slot outlives its process, and the next process in the slot continues the counters there, so a slot never changes its
role.
"""

from enum import StrEnum
from typing import Final

from rota.child.slot_memory import MOST_SLOTS

SLOTS: Final = MOST_SLOTS
TICK_SECONDS: Final = 1.0  # the interval of the master's heartbeats in slot 0; `livez` tolerates two missed ones

# The descriptors that a spawned child has from the start. It receives the others with the first message.
CHANNEL_FD: Final = 3  # a SOCK_SEQPACKET socket that is connected to the master
DEATH_FD: Final = 4  # the read end of the death pipe, which becomes readable when the master dies

STACK_FILE: Final = "rota-stack"  # the beginning of the name of a stack file; the slot and the nonce follow
EXIT_REASON_MARK: Final = "Exit reason: "  # precedes the reason for an exit in a stack file
OWNER_MARK: Final = "ROTA_OWNER"  # the environment variable that names the task's owner for subprocesses of a worker


class Role(StrEnum):
    """The role of a process in the fleet."""

    MASTER = "master"
    EXPORTER = "exporter"
    ZYGOTE = "zygote"
    POLLER = "poller"
    WORKER = "worker"


RANGES: Final = {
    Role.MASTER: range(1),
    Role.EXPORTER: range(1, 2),
    Role.ZYGOTE: range(2, 4),
    Role.POLLER: range(4, 8),
    Role.WORKER: range(8, SLOTS),
}

EXPORTER_SLOT: Final = RANGES[Role.EXPORTER][0]


def role_of(slot: int) -> Role:
    """Return the role of the processes in this slot. Raises ValueError if the slot belongs to no role."""
    for role, slots in RANGES.items():
        if slot in slots:
            return role
    raise ValueError(f"slot {slot} of {SLOTS}")
