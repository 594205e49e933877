"""What every spawned child does first: read its first packet, tie its life to the master's, leave stacks when asked."""

import os
import socket
import sys
from dataclasses import dataclass

from rota.child.life import EXIT_ORPHANED, EXIT_OTHER_VERSION
from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot
from rota_supervisor import messages
from rota_supervisor.layout import CHANNEL_FD, SLOTS_FD, STACK_FD
from rota_supervisor.process import die_with_parent
from rota_supervisor.stack_file import leave_none_at_the_end, leave_stacks_in


@dataclass(frozen=True, slots=True)
class Entrance:
    """A child that has come in: its channel, its first message, the memory and its own slot."""

    channel: socket.socket
    first: messages.First
    memory: SlotMemory
    slot: Slot


def enter(pid: int) -> Entrance:
    """Come in as the process `pid`. Leaves by SystemExit when the master is gone, of another version, or
    has given the slot away."""
    channel = socket.socket(fileno=CHANNEL_FD)
    channel.set_inheritable(False)
    try:
        first = messages.receive_first(channel)
    except EOFError:
        sys.exit(EXIT_ORPHANED)
    except messages.WrongAbi as error:
        sys.stderr.write(f"rota: error: {error}\n")
        sys.exit(EXIT_OTHER_VERSION)
    if not die_with_parent(first.master_pid):
        sys.exit(EXIT_ORPHANED)
    if first.has_stack_file:
        os.set_inheritable(STACK_FD, False)
    leave_stacks_in(STACK_FD if first.has_stack_file else None)
    leave_none_at_the_end()
    memory = SlotMemory.attach(SLOTS_FD)
    slot = memory.slot(first.slot)
    if not slot.enter(first.nonce, pid):
        sys.exit(EXIT_ORPHANED)
    return Entrance(channel, first, memory, slot)
