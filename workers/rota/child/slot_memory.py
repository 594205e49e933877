"""The memory that holds all slots: one sealed memfd, which the master creates before its first child.

Each child maps its own region, and maps the process table read-only. The child then closes the descriptor, so that it
cannot map any other region. A `SharedText` is a text that a process publishes in a part of that memory.
"""

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Final

from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES, WORD
from rota.child.slots import Slot

MOST_SLOTS: Final = 1024
PROCESS_TABLE_BYTES: Final = MOST_SLOTS * PROCESS_ROW_BYTES
_READ: Final = mmap.PROT_READ
_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED: Final = ctypes.c_void_p(-1).value


class SlotMemory:
    """The memory of all slots. The master creates it and writes to it, and the exporter maps it to read it."""

    def __init__(self, fd: int, count: int, access: int) -> None:
        self.fd = fd
        self.count = count
        self._map = mmap.mmap(fd, PROCESS_TABLE_BYTES + count * REGION_BYTES, prot=access)
        self._view = memoryview(self._map)
        self._slots: dict[int, Slot] = {}

    @classmethod
    def create(cls, count: int) -> "SlotMemory":
        """Create a memfd with `count` regions, sealed against resizing. Pages that have never been written take no
        memory."""
        fd = os.memfd_create("rota-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, PROCESS_TABLE_BYTES + count * REGION_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(fd, count, _WRITE)

    @classmethod
    def to_read(cls, fd: int) -> "SlotMemory":
        """Map the memory behind an inherited descriptor, read-only."""
        return cls(fd, (os.fstat(fd).st_size - PROCESS_TABLE_BYTES) // REGION_BYTES, _READ)

    def slot(self, number: int) -> Slot:
        """Return the slot with this number, counted from 0. Raises IndexError if there is no such slot."""
        found = self._slots.get(number)
        if found is None:  # cache each slot, because the master uses it many times a second
            found = self._slots[number] = self._cut_out(number)
        return found

    def _cut_out(self, number: int) -> Slot:
        if not 0 <= number < self.count:
            raise IndexError(f"slot {number} of {self.count}")
        at = region_at(number)
        return Slot(self._view[at : at + REGION_BYTES], _row_of(self._view, number))


def region_at(number: int) -> int:
    """Return the offset of a slot's region."""
    return PROCESS_TABLE_BYTES + number * REGION_BYTES


def _row_of(process_table: memoryview, number: int) -> memoryview:
    return process_table[number * PROCESS_ROW_BYTES : (number + 1) * PROCESS_ROW_BYTES]


@dataclass(frozen=True, slots=True)
class EnteredSlot:
    """The parts of the memory that a child has mapped: its own slot, and the process table, which it can only read."""

    slot: Slot
    process_table: memoryview


def enter_slot(fd: int, number: int, nonce: int, pid: int, *, for_forks: bool = True) -> EnteredSlot | None:
    """Map a slot into this process, and write this process's pid into the process table. Returns None if the master has
    assigned the slot to another process in the meantime.

    After this, the caller can close the descriptor, so that this process cannot reach other slots. `for_forks` states
    whether forked copies of this process inherit the mapping of the slot.
    """
    region = _map(fd, region_at(number), REGION_BYTES, _WRITE, for_forks=for_forks)
    with (
        mmap.mmap(fd, PROCESS_TABLE_BYTES) as process_table,
        memoryview(process_table) as writable,
        _row_of(writable, number) as part,
    ):
        entered = Slot(region, part).enter(nonce, pid)
    if not entered:
        return None
    table_to_read = _map(fd, 0, PROCESS_TABLE_BYTES, _READ).toreadonly()
    return EnteredSlot(Slot(region, _row_of(table_to_read, number)), table_to_read)


def _map(fd: int, at: int, length: int, access: int, *, for_forks: bool = True) -> memoryview:
    """Map a part of the file until this process ends. Raises OSError if that is not possible.

    This calls the C library directly, because Python's `mmap` keeps a copy of the descriptor.
    """
    address = _LIBC.mmap(None, length, access, mmap.MAP_SHARED, fd, at)
    if address == _FAILED or (not for_forks and _LIBC.madvise(address, length, mmap.MADV_DONTFORK) != 0):
        code = ctypes.get_errno()
        raise OSError(code, f"mapping a slot: {os.strerror(code)}")
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


class SharedText:
    """A text in shared memory, with room for two copies. A number, which is written last, selects the current copy.

    A process that reads during a write gets the earlier text. If a second write has begun by the end of the read, the
    process reads again.
    """

    def __init__(self, area: memoryview) -> None:
        self._bytes = area
        self._words = area.cast("q")
        self._copy_bytes = (len(area) - WORD) // 2 // WORD * WORD

    @property
    def capacity(self) -> int:
        """The size of the longest text that fits, in bytes."""
        return self._copy_bytes - WORD

    def publish(self, raw: bytes) -> None:
        """Replace the text. Raises ValueError if it does not fit."""
        if len(raw) > self.capacity:
            raise ValueError(f"the text has {len(raw)} bytes, but there is room for only {self.capacity}")
        number = self._words[0] + 1
        at = self._copy_at(number)
        self._bytes[at + WORD : at + WORD + len(raw)] = raw
        self._words[at // WORD] = len(raw)
        self._words[0] = number

    def read(self) -> bytes:
        """Return the current text, or b"" if there is none."""
        while True:
            number = self._words[0]
            if number == 0:
                return b""
            at = self._copy_at(number)
            raw = bytes(self._bytes[at + WORD : at + WORD + self._words[at // WORD]])
            if self._words[0] == number:
                return raw

    def _copy_at(self, number: int) -> int:
        return WORD + (number & 1) * self._copy_bytes
