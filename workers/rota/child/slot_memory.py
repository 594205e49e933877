"""The memory that holds all slots: one sealed memfd, inherited by every child."""

import fcntl
import mmap
import os

from rota.child.slot_outcomes import REGION_BYTES
from rota.child.slots import Slot


class SlotMemory:
    """All slots. The master creates it; children attach to the descriptor they inherit."""

    def __init__(self, fd: int, count: int) -> None:
        self.fd = fd
        self.count = count
        self._map = mmap.mmap(fd, count * REGION_BYTES)
        self._view = memoryview(self._map)
        self._slots: dict[int, Slot] = {}

    @classmethod
    def create(cls, count: int) -> "SlotMemory":
        """Make a memfd of `count` regions, sealed against shrinking. Sparse: untouched pages cost nothing."""
        fd = os.memfd_create("rota-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, count * REGION_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(fd, count)

    @classmethod
    def attach(cls, fd: int) -> "SlotMemory":
        """Map the memory behind an inherited descriptor."""
        return cls(fd, os.fstat(fd).st_size // REGION_BYTES)

    def slot(self, number: int) -> Slot:
        """The slot of that number, from 0. Raises IndexError outside the memory."""
        found = self._slots.get(number)
        if found is None:  # the master asks for each many times a second
            found = self._slots[number] = self._cut_out(number)
        return found

    def _cut_out(self, number: int) -> Slot:
        if not 0 <= number < self.count:
            raise IndexError(f"slot {number} of {self.count}")
        return Slot(self._view[number * REGION_BYTES : (number + 1) * REGION_BYTES])
