"""What master and children agree on before they speak: slots of each role, beat, descriptors, the owner's mark.

A slot outlives its process and its counters go on, so a slot never changes its role.
"""

from enum import StrEnum
from typing import Final

from rota.child.slot_memory import MOST_SLOTS

SLOTS: Final = MOST_SLOTS
TICK_SECONDS: Final = 1.0  # the master's beat in slot 0; `livez` allows it to miss two

# Descriptors of a spawned child from its first instruction on; others come with its first message.
CHANNEL_FD: Final = 3  # SOCK_SEQPACKET to the master
DEATH_FD: Final = 4  # read end of the death pipe: readable when the master is gone

STACK_FILE: Final = "rota-stack"  # with slot and nonce the name of a child's stack file
LAST_WORDS: Final = "Last words: "  # in a stack file, before the reason why a child leaves
OWNER_MARK: Final = "ROTA_OWNER"  # in the environment of what a task starts: the owner whose task it was


class Role(StrEnum):
    """What a process of the fleet is."""

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
    """The role whose range holds this slot. Raises ValueError outside of all."""
    for role, slots in RANGES.items():
        if slot in slots:
            return role
    raise ValueError(f"slot {slot} of {SLOTS}")
