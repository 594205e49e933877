"""A log that is never read, or that is on a full disk. The fleet continues to work, and reports how many log lines were
lost.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from support.fleets import Fleets
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

TASKS = 500


@contextmanager
def unread_pipe() -> Iterator[int]:
    """Yield the write end of a full pipe. The read end is open, but nothing reads from it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    yield writing
    for end in (reading, writing):
        os.close(end)


@contextmanager
def broken_pipe() -> Iterator[int]:
    """Yield the write end of a pipe whose read end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@contextmanager
def full_disk() -> Iterator[int]:
    """Yield a file descriptor to which every write fails with ENOSPC."""
    full = os.open("/dev/full", os.O_WRONLY)
    yield full
    os.close(full)


def test_a_stop_completes_even_if_no_process_reads_the_log_pipe(fleets: Fleets) -> None:
    fleet = fleets.make(workers=1)
    with unread_pipe() as fleet.log_fd:
        fleet.start()
        assert fleet.rota("stop").returncode == 0
        assert fleet.exit_code() == 0


def test_a_failed_start_exits_even_if_no_process_reads_the_log_pipe(fleets: Fleets) -> None:
    fleet = fleets.make(imports=["tasks", "nowhere_at_all"])
    with unread_pipe() as fleet.log_fd:
        fleet.launch()
        assert fleet.exit_code() == 78


SLOW_READER = "the reader of the log is too slow"
NO_ROOM = "the disk is full, or the reader of the log has exited"


@pytest.mark.parametrize(("sink", "why"), [(unread_pipe, SLOW_READER), (broken_pipe, NO_ROOM), (full_disk, NO_ROOM)])
def test_lost_log_lines_are_shown_with_the_reason(
    fleets: Fleets, sink: Callable[[], AbstractContextManager[int]], why: str
) -> None:
    fleet = fleets.make(workers=1)
    with sink() as fleet.log_fd:
        fleet.start()
        until(lambda: f"lost: {why}" in fleet.rota("top", "--once").stdout, lambda: fleet.rota("top", "--once").stdout)
        fleet.term()
        assert fleet.exit_code() == 0


@pytest.mark.parametrize("sink", [unread_pipe, broken_pipe, full_disk])
def test_a_blocked_log_does_not_delay_tasks_and_lost_lines_are_counted(
    fleets: Fleets, sink: Callable[[], AbstractContextManager[int]]
) -> None:
    fleet = fleets.make(workers=2)
    with sink() as fleet.log_fd:
        fleet.start()
        for number in range(TASKS):
            fleet.client.enqueue("note", args=[f"{number}"], queue="default", delay=0.001 * (number % 100))
        fleet.wait_for("end", TASKS)
        os.kill(fleet.hold("held").pid, signal.SIGKILL)
        fleet.wait_for("start", 2, label="held")
        fleet.edit(workers=3)
        fleet.hup()
        fleet.until_workers(3)
        until(lambda: fleet.metrics().total("rota_log_lines_dropped_total") >= TASKS, "every lost line is counted")
        fleet.release("held")
        fleet.wait_for("end", label="held")
        assert fleet.books_balance()
        fleet.term()
        assert fleet.exit_code() == 0
    assert fleet.log_text() == ""
