"""What every spawned child does first: read its first packet, tie its life to the master's, leave stacks when asked."""

import os
import socket
import sys
from dataclasses import dataclass

from rota.child.life import EXIT_ORPHANED, EXIT_OTHER_VERSION
from rota.child.slot_memory import move_in
from rota.child.slots import Slot
from rota_supervisor import messages
from rota_supervisor.exits import say_crash
from rota_supervisor.layout import CHANNEL_FD, SLOTS_FD, STACK_FD, Role
from rota_supervisor.process import die_with_parent
from rota_supervisor.stack_file import hear_nothing_at_the_end, leave_stacks_in


@dataclass(frozen=True, slots=True)
class Entrance:
    """A child that has come in: its channel, its first message, its slot, and the roster of all for reading."""

    channel: socket.socket
    first: messages.First
    slot: Slot
    roster: memoryview


def enter(pid: int) -> Entrance:
    """Come in as the process `pid`. Leaves by SystemExit when the master is gone, of another version, or
    has given the slot away."""
    sys.excepthook = say_crash
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
    hear_nothing_at_the_end()
    leave_stacks_in(STACK_FD if first.has_stack_file else None)
    place = move_in(SLOTS_FD, first.slot, first.nonce, pid, for_forks=False)
    if place is None:
        sys.exit(EXIT_ORPHANED)
    if first.role != Role.EXPORTER:  # which looks at the others
        os.close(SLOTS_FD)
    return Entrance(channel, first, place.slot, place.roster)
