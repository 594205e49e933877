"""How much memory a worker has come to hold since its fork."""

import mmap
import os
from typing import Final

_MEBIBYTE: Final = 1 << 20
_EVERY_NS: Final = 100_000_000  # a look takes 3 us, a short task no more than 10
_LINE_BYTES: Final = 128


class Growth:
    """Resident memory less what was resident when this was made. Pages that it shares with its zygote count in both."""

    def __init__(self, max_mb: int) -> None:
        self._most_pages = max_mb * _MEBIBYTE // mmap.PAGESIZE
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._first_pages = self._resident_pages()
        self._looked_ns = 0

    def is_due(self, at_ns: int) -> bool:
        """Whether it is time for another look, between two tasks."""
        return at_ns - self._looked_ns > _EVERY_NS

    def is_over(self, at_ns: int) -> bool:
        """Look whether it has grown by more than it may."""
        self._looked_ns = at_ns
        return self._resident_pages() - self._first_pages > self._most_pages

    def _resident_pages(self) -> int:
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1])
