"""One life of a worker or a poller: what its process holds besides its settings."""

import contextlib
import os
from dataclasses import dataclass

from rota.child.slots import Slot


@dataclass(frozen=True, slots=True)
class Life:
    """A child's place and its lines to the master.

    `owner` is the name it claims under, "" for a poller. `death_fd` becomes readable when the master is
    gone. `master_bell_fd` is an eventfd: writing to it has the master look at the slots.
    """

    slot_number: int
    slot: Slot
    nonce: int
    owner: str
    death_fd: int
    master_bell_fd: int

    def ring_master(self) -> None:
        """Have the master look at the slots now."""
        ring(self.master_bell_fd)


def ring(bell_fd: int) -> None:
    """Ring a bell that all children share. A task may have closed it, or rung it to the brim, which is heard too."""
    with contextlib.suppress(OSError):
        os.eventfd_write(bell_fd, 1)


class StartFailed(Exception):
    """The application has this worker not start; says why, without what the application's error may hold."""


# Exit codes of children: how the master tells an orderly end from a crash.
EXIT_DRAINED = 0
EXIT_LOST = 75  # the owner is no longer registered: leave without touching anything
EXIT_ORPHANED = 77  # the master is gone
EXIT_OVERWRITTEN = 78  # a task wrote over the slot
EXIT_OTHER_VERSION = 79  # the master runs another version of the package
