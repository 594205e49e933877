"""The tasks of the benchmarks, which are the same for every contender. Each counts its calls, and may work and record
its start.

Counting and recording need no round trip and cost every contender the same. A call is counted in two words of shared
memory (0.3 us), and a start is recorded as one line that is appended to an open file (2 us). The times are from this
machine's clock. TIME of the server returns the same clock, because the server runs on this machine. This module imports
only the standard library, because it runs in each contender's own interpreter.
"""

import functools
import mmap
import os
import time
from array import array
from pathlib import Path
from typing import Final

FOLDER: Final = Path(os.environ.get("BENCH_FOLDER", "."))
WORDS: Final = 65_536
WORK_SECONDS: Final = 0.010
BRIEF_SECONDS: Final = 0.001
POLL_SECONDS: Final = 0.005
NAMES: Final = ("nothing", "brief", "work", "mark", "delayed", "meet", "hold")


class _Count:
    """The two words of a process in the shared table: the number of its calls, and the microseconds that it spent in
    them. A forked process gets two words of its own."""

    def __init__(self) -> None:
        self.pid = 0
        self.words = memoryview(bytearray(16)).cast("Q")
        self.testbed = 0

    def add(self, busy_us: int = 0) -> None:
        if self.pid != os.getpid():
            self._find()
        self.words[self.testbed + 1] += busy_us
        self.words[self.testbed] += 1

    def _find(self) -> None:
        with (FOLDER / "counts").open("r+b") as table:
            self.words = memoryview(mmap.mmap(table.fileno(), WORDS * 8)).cast("Q")
        taken = os.open(FOLDER / "places", os.O_WRONLY | os.O_APPEND)
        os.write(taken, b"x")
        self.testbed = 2 * (os.lseek(taken, 0, os.SEEK_CUR) - 1) % WORDS
        os.close(taken)
        self.pid = os.getpid()


count_of_calls = _Count()


def words(folder: Path) -> "array[int]":
    """Return the words of all processes. Numbers of calls and microseconds alternate."""
    used = (folder / "places").stat().st_size
    with (folder / "counts").open("rb") as table:
        return array("Q", table.read(min(2 * used, WORDS) * 8))


def write(event: str, label: int, at_ns: int) -> None:
    """Append a line with a single write, so that lines of several processes do not mix."""
    os.write(_journal(), f"{event} {label} {at_ns} {os.getpid()}\n".encode())


@functools.cache
def _journal() -> int:
    """Return the descriptor of the journal. The file stays open, because opening and closing it would take ten times as
    long as a write."""
    return os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND)


def nothing(_number: int) -> None:
    """Count one call."""
    count_of_calls.add()


def brief(_number: int) -> None:
    """Sleep for 1 ms, and count one call."""
    time.sleep(BRIEF_SECONDS)
    count_of_calls.add()


def work(_number: int) -> None:
    """Sleep for 10 ms, and count the call and its duration."""
    started = time.perf_counter_ns()
    time.sleep(WORK_SECONDS)
    count_of_calls.add((time.perf_counter_ns() - started) // 1000)


def mark(label: int) -> None:
    """Record the start, and count one call. `label`: the planned start in microseconds."""
    write("mark", label, time.time_ns())
    count_of_calls.add()


def delayed(label: int) -> None:
    """Do the same as `mark` under another name, to distinguish two kinds of tasks in one run."""
    write("delayed", label, time.time_ns())
    count_of_calls.add()


def meet(label: int) -> None:
    """Wait until the runner has seen all workers in this task."""
    write("meet", label, time.time_ns())
    while not (FOLDER / "met").exists():
        time.sleep(POLL_SECONDS)
    write("met", label, time.time_ns())


def hold(label: int) -> None:
    """Wait until the runner releases the task. The runner may kill the worker meanwhile."""
    write("hold", label, time.time_ns())
    while not (FOLDER / "let-go").exists():
        time.sleep(POLL_SECONDS)
