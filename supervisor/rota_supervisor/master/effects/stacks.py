"""The stack files of living children: one memfd each, which its process writes and only the master reads.

The open file description is shared with the child. So its offset says how much was written since the master last
went back to the beginning, and no child can be led to write beyond the end: the size is sealed. A child keeps its
file while it lives, 4 kB of memory once it has written there, and one descriptor of the master.
"""

import contextlib
import fcntl
import os
import resource
from typing import Final

from rota.child.child_signals import STACK_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota_supervisor.layout import STACK_FILE
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.process import UNREACHABLE

FILE_BYTES: Final = 64 << 10  # sparse. A hundred frames take 8 kB, and the main thread's come last
SPARE_DESCRIPTORS: Final = 64  # left for channels, connections and what else a master opens
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def name_of(child: ChildRef) -> str:
    """The name of a child's file, of this life alone: a trace of it in whatever it leaves behind."""
    return f"{STACK_FILE}-{child.slot}-{child.nonce}"


class Stacks:
    """The files by child. `memory`: where a child shows that it can be asked."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._files: dict[int, int] = {}

    def make(self, child: ChildRef) -> int | None:
        """A file for a child about to be started; None when descriptors run out, and it lives without."""
        try:
            fd = os.memfd_create(name_of(child), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        if fd >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS:
            os.close(fd)
            return None
        os.ftruncate(fd, FILE_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        self._files[child.nonce] = fd
        return fd

    def ask(self, child: ChildRef) -> bool:
        """Have a child write its stacks, which takes about a millisecond; False when it cannot be asked."""
        fd, slot = self._files.get(child.nonce), self._memory.slot(child.slot)
        # Before it has come into its slot the signal would end it.
        can_hear = child.pid != 0 and slot.nonce == child.nonce and slot.pid == child.pid
        if fd is None or not can_hear:
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        with contextlib.suppress(*UNREACHABLE):
            os.kill(child.pid, STACK_SIGNAL)
        return True

    def ask_for_tasks(self, child: ChildRef) -> None:
        """Have a worker of several tasks write to its log where each of them is, once its loop comes round."""
        slot = self._memory.slot(child.slot)
        if slot.places > 1 and child.pid and slot.nonce == child.nonce and slot.pid == child.pid:
            slot.stacks_asked += 1
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, WAKE_SIGNAL)

    def text(self, child: ChildRef) -> str:
        """What it has written since it was last asked or read; "" for nothing."""
        fd = self._files.get(child.nonce)
        if fd is None:
            return ""
        # The task may have moved the offset to wherever it liked.
        written = os.pread(fd, min(os.lseek(fd, 0, os.SEEK_CUR), FILE_BYTES), 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return written.decode(errors="replace")

    def close(self, child: ChildRef) -> None:
        """Let the file of a child go that is no more."""
        fd = self._files.pop(child.nonce, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        """Let every file go."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
