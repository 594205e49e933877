"""One life of a worker or a poller: what its process holds besides its settings, how long it may start tasks, and the
codes it leaves with."""

import contextlib
import os
from dataclasses import dataclass
from typing import Final

from rota.child.slots import Slot, boottime_ns

NANOSECONDS: Final = 1_000_000_000
_MARGIN_SHARE: Final = 0.1  # of the lease: time to get from the look at the clock into the task


def boottime_seconds() -> float:
    """Return the time by the clock of the slots, which all processes of a machine share."""
    return boottime_ns() / NANOSECONDS


@dataclass(frozen=True, slots=True)
class Life:
    """A child's place and its lines to the master.

    `node`: the name of its master's life. `owner` is the name it claims under, "" for a poller. `death_fd` becomes
    readable when the master is gone. `master_bell_fd` is an eventfd: writing to it has the master look at the slots.
    """

    node: str
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


class Fence:
    """Keeps a worker whose master may have lost its lease from starting anything.

    Both sides use CLOCK_BOOTTIME, which goes on while a machine sleeps. What counts is when the last successful renewal
    was *sent*: the server cannot have received it earlier, so the lease cannot end earlier than we think.
    """

    def __init__(self, slot: Slot, lease_seconds: float) -> None:
        self._slot = slot
        self._allowed_ns = fence_ns(lease_seconds)

    def is_up(self, at_ns: int) -> bool:
        """Whether nothing may be started at this time (CLOCK_BOOTTIME)."""
        return at_ns - self._slot.renewed_ns > self._allowed_ns


def fence_ns(lease_seconds: float) -> int:
    """How long after a renewal was sent tasks may still be started, in nanoseconds."""
    return round(lease_seconds * (1 - _MARGIN_SHARE) * NANOSECONDS)


class StartFailed(Exception):
    """The application has this worker not start; says why, without what the application's error may hold."""


# Exit codes of children: how the master tells an orderly end from a crash.
EXIT_DRAINED = 0
EXIT_LOST = 75  # the owner is no longer registered: leave without touching anything
EXIT_ORPHANED = 77  # the master is gone
EXIT_OVERWRITTEN = 78  # a task wrote over the slot
EXIT_OTHER_VERSION = 79  # the master runs another version of the package
