"""The constants that the master and its children must share before they can communicate: the slots of each role, the
interval of heartbeats, descriptors, and the variable that marks the processes of a task.

A slot outlives its process, and the next process continues its counters, so a slot never changes its role.
"""

from enum import StrEnum
from typing import Final

from rota.child.slot_memory import MOST_SLOTS

SLOTS: Final = MOST_SLOTS
TICK_SECONDS: Final = 1.0  # the interval of the master's heartbeats in slot 0; `livez` tolerates two missed ones

# The descriptors that a spawned child has from its first instruction on. Other descriptors arrive with its first
# message.
CHANNEL_FD: Final = 3  # a SOCK_SEQPACKET socket that is connected to the master
DEATH_FD: Final = 4  # the read end of the death pipe, which is readable when the master has died

STACK_FILE: Final = "rota-stack"  # the name of a stack file begins with this, followed by slot and nonce
EXIT_REASON_MARK: Final = "Exit reason: "  # in a stack file, the reason for an exit follows this text
OWNER_MARK: Final = "ROTA_OWNER"  # a variable with the owner of the task, which processes inherit from their worker


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
    """Return the role of this slot. Raises ValueError if no role's range contains the slot."""
    for role, slots in RANGES.items():
        if slot in slots:
            return role
    raise ValueError(f"slot {slot} of {SLOTS}")
