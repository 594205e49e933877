"""Wall clocks that are wrong, and that jump while a process runs. A small library, which is loaded before all others,
provides these clocks.
"""

import mmap
import subprocess
from pathlib import Path
from typing import Final

import pytest

SECOND_NS: Final = 1_000_000_000
_FILE: Final = "SHIFTED_CLOCK_FILE"
# Only the wall clock is shifted, because setting the time does not change CLOCK_MONOTONIC and CLOCK_BOOTTIME. The code
# calls the kernel directly by syscall number, because a call of the C library's function would end up in this function
# again.
_SOURCE: Final = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *shift;

__attribute__((constructor)) static void find_shift(void) {
    const char *path = getenv("SHIFTED_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = fd < 0 ? MAP_FAILED : mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) shift = found;
    if (fd >= 0) close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now)) return -1;
    if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + *shift;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec at;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &at)) return -1;
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (into) *into = at.tv_sec;
    return at.tv_sec;
}
"""


class ShiftedClock:
    """The wall clock of all processes that are started with `environment`. The clock is correct until `shift` is
    called.
    """

    def __init__(self, folder: Path) -> None:
        source, library, shift = (folder / f"clock.{ending}" for ending in ("c", "so", "shift"))
        source.write_text(_SOURCE)
        try:
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        except FileNotFoundError:
            pytest.skip("no gcc, so no clock can be shifted")
        shift.write_bytes(bytes(8))
        with shift.open("r+b") as file:
            self._shift = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
        self.environment = {"LD_PRELOAD": str(library), _FILE: str(shift)}

    def shift(self, seconds: float) -> None:
        """Set the clock ahead of the correct time, or behind it if `seconds` is negative. This also affects processes
        that already run.
        """
        self._shift[0] = round(seconds * SECOND_NS)
