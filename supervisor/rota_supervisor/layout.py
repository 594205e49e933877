"""The facts that master and children share before they communicate: the slots of each role, the heartbeat, descriptors,
and the mark of owners.

A slot outlives its process and its counters continue, so a slot never changes its role.
"""

from enum import StrEnum
from typing import Final

from rota.child.slot_memory import MOST_SLOTS

SLOTS: Final = MOST_SLOTS
TICK_SECONDS: Final = 1.0  # interval of the master's heartbeat in slot 0; `livez` tolerates two missed ones

# Descriptors that a spawned child has from its first instruction on. Others arrive with its first message.
CHANNEL_FD: Final = 3  # SOCK_SEQPACKET to the master
DEATH_FD: Final = 4  # read end of the death pipe: readable when the master has died

STACK_FILE: Final = "rota-stack"  # with slot and nonce, the name of a child's stack file
EXIT_REASON_MARK: Final = "Exit reason: "  # in a stack file, precedes the reason why a child exits
OWNER_MARK: Final = "ROTA_OWNER"  # environment variable of processes that a task starts: the owner of the task


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
    """Return the role whose range contains this slot. Raises ValueError if there is none."""
    for role, slots in RANGES.items():
        if slot in slots:
            return role
    raise ValueError(f"slot {slot} of {SLOTS}")
