"""The values that Rota reads from /proc about a process, compared with the values that psutil reads."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from rota_supervisor import process
from support.waiting import until

CLOCK_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
NO_POOLS: Final = 65534


@pytest.fixture
def own_process() -> psutil.Process:
    return psutil.Process()


def test_process_usage_read_from_proc_agrees_with_psutil(own_process: psutil.Process) -> None:
    usage = process.usage_of(os.getpid())
    assert usage is not None
    assert usage.resident_bytes == pytest.approx(own_process.memory_info().rss, rel=0.05)
    times = own_process.cpu_times()
    assert usage.cpu_seconds == pytest.approx(times.user + times.system, abs=0.5)
    assert usage.open_fds == pytest.approx(own_process.num_fds(), abs=2)


def test_start_time_and_parent_read_from_proc_agree_with_psutil(own_process: psutil.Process) -> None:
    assert process.started_at(os.getpid()) == pytest.approx(
        own_process.create_time(), abs=1.1
    )  # psutil rounds the boot time to whole seconds
    assert process.parent_of(os.getpid()) == os.getppid()


def test_the_start_time_of_a_process_is_exact_to_a_clock_tick() -> None:
    before = time.time()
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert before - CLOCK_TICK_SECONDS <= process.started_at(child.pid) <= time.time()
        finally:
            child.kill()


def test_the_cpu_time_of_a_zombie_process_is_still_known() -> None:
    with subprocess.Popen([sys.executable, "-c", "for _ in range(10**6): pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        used = process.cpu_seconds_of(child.pid)
    assert used > 0
    assert process.cpu_seconds_of(child.pid) == 0


def test_a_process_name_with_blanks_and_brackets_is_parsed(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as child:
        try:
            until(lambda: psutil.Process(child.pid).name() == odd.name)
            assert process.parent_of(child.pid) == os.getpid()
            assert process.usage_of(child.pid) is not None
        finally:
            child.kill()


def test_an_ended_process_has_no_usage_and_no_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert process.usage_of(child.pid) is None
    assert process.parent_of(child.pid) is None


@contextmanager
def without_root_privileges() -> Iterator[None]:
    """Run as a user who owns no process, because root may read the processes of all users."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NO_POOLS)
    try:
        yield
    finally:
        os.seteuid(before)


def test_file_descriptor_counts_of_other_users_processes_are_unknown() -> None:
    with without_root_privileges():
        usage = process.usage_of(1)
    assert usage is not None
    assert usage.open_fds is None
