"""The processor time and the memory that a node has left for more workers."""

import os

import pytest

from rota_supervisor.cgroups import CgroupReading
from rota_supervisor.master.effects.node_resources import (
    CpuTimes,
    ResourceReader,
    busy_share,
    free_bytes,
    private_bytes,
    ticks_in,
)

GIGABYTE = 1 << 30
MEMINFO = f"MemTotal: {10 * GIGABYTE >> 10} kB\nMemFree: 5 kB\nMemAvailable: {4 * GIGABYTE >> 10} kB\n"
STAT = """cpu  900 0 0 900 0 0 0 0 0 0
cpu0 100 20 30 400 50 1 2 3 90 90
cpu1 700 0 0 300 0 0 0 0 0 0
cpu11 1 1 1 1 1 1 1 1 1 1
intr 5
"""


@pytest.mark.parametrize(("processors", "ticks"), [({0}, (156, 606)), ({0, 1}, (856, 1606)), ({7}, (0, 0))])
def test_only_processors_that_the_process_may_use_are_counted(processors: set[int], ticks: tuple[int, int]) -> None:
    assert ticks_in(STAT, processors) == ticks


def test_the_busy_share_of_processors_is_computed_from_two_readings() -> None:
    before = CpuTimes(10.0, 500, 1000, None, None)
    assert busy_share(before, CpuTimes(12.0, 594, 1100, None, None)) == pytest.approx(0.94)


def test_a_control_group_counts_as_busy_near_its_own_processor_limit() -> None:
    before = CpuTimes(10.0, 0, 1000, 7.0, 1.5)
    assert busy_share(before, CpuTimes(12.0, 50, 1100, 9.7, 1.5)) == pytest.approx(0.9)
    assert busy_share(before, CpuTimes(12.0, 95, 1100, 9.7, 1.5)) == pytest.approx(0.95)


def test_without_two_different_readings_no_processor_counts_as_busy() -> None:
    for times in (CpuTimes(10.0, 500, 1000, 7.0, 1.5), CpuTimes(10.0, 0, 0, None, None)):
        assert busy_share(times, times) == 0


def test_a_tenth_of_the_memory_is_kept_free_for_other_uses() -> None:
    assert free_bytes(MEMINFO, CgroupReading()) == pytest.approx(3 * GIGABYTE, abs=4096)
    group = CgroupReading(memory_limit=2 * GIGABYTE, memory_used=GIGABYTE)
    assert free_bytes(MEMINFO, group) == pytest.approx(0.8 * GIGABYTE, abs=4096)
    assert free_bytes("", group) == pytest.approx(0.8 * GIGABYTE, abs=4096)


def test_a_full_control_group_has_no_free_memory() -> None:
    assert free_bytes(MEMINFO, CgroupReading(memory_limit=GIGABYTE, memory_used=GIGABYTE)) == 0


def test_without_readable_proc_files_the_free_memory_is_unknown() -> None:
    assert free_bytes("", CgroupReading()) is None
    assert free_bytes("MemTotal: 5 kB\n", CgroupReading()) is None


def test_processor_and_memory_use_of_this_machine_can_be_read() -> None:
    reader = ResourceReader()
    first = reader.read(0.95)
    assert first.free_bytes is not None
    assert not first.is_cpu_busy
    assert reader.read(0.95) is first
    assert private_bytes(os.getpid()) > 1 << 20
    assert private_bytes(0) == 0
