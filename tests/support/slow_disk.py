"""A disk whose writes hang on request. A small library, which the server loads before all others, holds the writes
back.
"""

import shlex
import subprocess
from pathlib import Path
from typing import Final

# The server's write thread waits as long as the file exists. The code calls the kernel directly by syscall number,
# because a call of the C library's function would end up in this function again.
_SOURCE: Final = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int written(long number, int fd) {
    const char *path = getenv("SLOW_DISK_FILE");
    while (path && access(path, F_OK) == 0) usleep(5000);
    return syscall(number, fd);
}

int fdatasync(int fd) { return written(SYS_fdatasync, fd); }
int fsync(int fd) { return written(SYS_fsync, fd); }
"""


class SlowDisk:
    """A wrapper around a server's binary. `stall` and `go_on` control whether the server's writes reach the disk."""

    def __init__(self, folder: Path, binary: str) -> None:
        self._mark = folder / "stalled"
        source, library = folder / "slow_disk.c", folder / "slow_disk.so"
        source.write_text(_SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True, timeout=60)
        self._wrapper = folder / "server"
        words = shlex.join([f"LD_PRELOAD={library}", f"SLOW_DISK_FILE={self._mark}", binary])
        self._wrapper.write_text(f'#!/bin/sh\nexec env {words} "$@"\n')
        self._wrapper.chmod(0o755)

    @property
    def binary(self) -> str:
        """The program to start in place of the server."""
        return str(self._wrapper)

    def stall(self) -> None:
        """Hold back all writes from now on."""
        self._mark.touch()

    def go_on(self) -> None:
        """Let the waiting writes finish."""
        self._mark.unlink(missing_ok=True)
