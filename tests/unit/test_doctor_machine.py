"""The findings of `rota doctor` about a machine: limits, control groups of both versions, memory, processors, and the
unit.
"""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rota_supervisor.cgroups import CgroupReading, read_cgroup
from rota_supervisor.config.model import Config, Limits
from rota_supervisor.doctor.machine_reader import may_have_huge_pages, parse_limits, read_machine, read_process
from rota_supervisor.doctor.machine_rules import GRACE_SECONDS
from rota_supervisor.doctor.readings import Unread
from rota_supervisor.doctor.unit_reader import read_unit, seconds_in, unit_in, unit_of_properties
from support.cgroups import group
from support.examinations import (
    GIGABYTE,
    MEGABYTE,
    PROCESS,
    WELL,
    ids_in,
    seen_in,
    with_cgroup,
    with_machine,
    with_process,
    with_unit,
)
from support.prose import ROOT


def files(folder: Path, content: dict[str, str]) -> None:
    """Write the files of a control group."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name).write_text(text + "\n")


# Control groups


def test_in_cgroup_version_2_the_lowest_limit_of_all_levels_applies(tmp_path: Path) -> None:
    files(tmp_path, {"cgroup.controllers": "cpu memory pids"})
    files(tmp_path / "kube", {"memory.max": "1073741824", "memory.current": "900", "memory.stat": "inactive_file 400"})
    files(tmp_path / "kube/pod", {"memory.max": "2147483648", "cpu.max": "150000 100000", "pids.max": "512"})
    files(tmp_path / "kube/pod", {"pids.current": "40", "memory.oom.group": "1", "cpu.stat": "usage_usec 2500000\nx 1"})
    assert read_cgroup("0::/kube/pod\n", tmp_path) == CgroupReading(
        version=2,
        path="/kube/pod",
        memory_limit=GIGABYTE,
        memory_used=500,
        kills_together=True,
        cpu_limit=1.5,
        cpu_seconds=2.5,
        processes_limit=512,
        processes_used=40,
    )


def test_a_cgroup_of_version_2_without_limits_has_no_limits(tmp_path: Path) -> None:
    files(tmp_path, {"cgroup.controllers": ""})
    files(tmp_path / "user", {"memory.max": "max", "cpu.max": "max 100000", "pids.max": "max", "memory.oom.group": "0"})
    assert read_cgroup("0::/user\n", tmp_path) == CgroupReading(version=2, path="/user")


V1 = "9:name=systemd:/\n8:pids:/docker/abc\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"


@pytest.mark.parametrize("where", ["docker/abc", ""], ids=["on the host", "in a container without its own view"])
def test_cgroup_version_1_limits_are_read_at_the_path_or_the_mount_point(tmp_path: Path, where: str) -> None:
    files(tmp_path / "memory" / where, {"memory.limit_in_bytes": "536870912", "memory.usage_in_bytes": "1000"})
    files(tmp_path / "memory" / where, {"memory.stat": "cache 700\ntotal_inactive_file 300"})
    files(tmp_path / "cpu" / where, {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"})
    files(tmp_path / "cpu" / where, {"cpuacct.usage": "2500000000"})
    files(tmp_path / "pids" / where, {"pids.max": "100", "pids.current": "7"})
    assert read_cgroup(V1, tmp_path) == CgroupReading(
        version=1,
        path="/docker/abc",
        memory_limit=512 * MEGABYTE,
        memory_used=700,
        cpu_limit=0.5,
        cpu_seconds=2.5,
        processes_limit=100,
        processes_used=7,
    )


def test_a_cgroup_of_version_1_without_limits_has_no_limits(tmp_path: Path) -> None:
    files(tmp_path / "memory", {"memory.limit_in_bytes": "9223372036854771712"})
    files(tmp_path / "cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    files(tmp_path / "pids", {"pids.max": "max"})
    assert read_cgroup(V1, tmp_path) == CgroupReading(version=1, path="/docker/abc")


@pytest.mark.parametrize("text", ["", "0::/../../elsewhere\n", "0::/gone\n"])
def test_a_control_group_that_is_not_visible_has_no_limits(tmp_path: Path, text: str) -> None:
    found = read_cgroup(text, tmp_path)
    assert (found.memory_limit, found.cpu_limit, found.processes_limit) == (None, None, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a control group, which root alone may do")
def test_the_memory_limit_of_a_real_control_group_is_read() -> None:
    with group("memory") as made:
        made.set("memory.max" if made.is_v2 else "memory.limit_in_bytes", 300 * MEGABYTE)
        program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            made.take([program.pid])
            unread: list[Unread] = []
            found = read_process(program.pid, is_master=False, unread=unread).cgroup
        finally:
            program.communicate(b"\n")
    assert (found.memory_limit, unread) == (300 * MEGABYTE, [])
    assert found.memory_used is not None
    assert found.memory_used < 300 * MEGABYTE


# This machine


def test_process_limits_in_the_kernels_format_are_parsed() -> None:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 1048576              files     \n"
        "Max processes             unlimited            unlimited            processes \n"
        "Max nice priority         0                    0                    \n"
    )
    assert parse_limits(text) == {"open files": 1024, "processes": None, "nice priority": 0}


def test_doctor_can_read_the_limits_of_this_process_and_machine() -> None:
    unread: list[Unread] = []
    process = read_process(os.getpid(), is_master=False, unread=unread)
    machine = read_machine({}, unread)
    assert unread == []
    assert process.user_id == os.geteuid()
    assert process.open_files is not None
    assert process.processors == len(os.sched_getaffinity(0))
    assert process.user_threads is not None
    assert process.user_threads >= 1
    assert machine.memory > machine.memory_available > 0
    assert machine.huge_pages in ("always", "madvise", "never")
    assert machine.overcommit in (0, 1, 2)
    assert machine.threads_limit is not None
    assert machine.threads_used is not None
    assert machine.threads_limit > machine.threads_used > 0
    assert machine.shared_memory is not None


def test_doctor_reports_a_process_that_ended_as_unreadable() -> None:
    unread: list[Unread] = []
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    read_process(gone.pid, is_master=True, unread=unread)
    assert [each.what for each in unread] == [f"limits and control group of process {gone.pid}"]


def test_kubernetes_is_recognized_by_its_environment_variable() -> None:
    assert read_machine({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, []).container == "kubernetes"


def test_the_huge_page_setting_is_read_only_for_a_redis_server_process() -> None:
    assert may_have_huge_pages(os.getpid(), ("redis-server",)) is None
    own = Path("/proc/self/comm").read_text().strip()
    assert may_have_huge_pages(os.getpid(), (own,)) in (True, False)


# Rules


def test_before_the_start_doctor_checks_if_there_is_room_for_the_workers() -> None:
    few = with_cgroup(processes_limit=220, processes_used=205)
    assert ids_in(replace(few, process=replace(few.process, is_master=False), workers=20)) == ["processes-exhausted"]


def test_the_process_limit_does_not_apply_to_root() -> None:
    assert ids_in(with_process(processes=210, user_threads=205)) == ["processes-low"]
    assert ids_in(with_process(processes=210, user_threads=205, user_id=0)) == []


def test_doctor_names_the_process_limit_that_has_the_least_room() -> None:
    found = replace(with_cgroup(processes_limit=240, processes_used=200), machine=WELL.machine)
    found = replace(found, process=replace(found.process, processes=210, user_threads=205))
    assert seen_in(found, "processes-low").startswith("the limit on processes of the user is 210, and 5 are left")


def test_without_a_lower_cgroup_limit_the_memory_of_the_machine_applies() -> None:
    small = with_machine(memory=GIGABYTE, memory_available=50 * MEGABYTE)
    assert seen_in(small, "memory-low") == "974 MB of 1,024 MB of memory on this machine are in use"
    above = replace(small, process=replace(PROCESS, cgroup=CgroupReading(memory_limit=2 * GIGABYTE, memory_used=0)))
    assert seen_in(above, "memory-low") == "974 MB of 1,024 MB of memory on this machine are in use"


def test_doctor_expects_each_worker_to_grow_to_at_most_max_rss_mb() -> None:
    enough = replace(with_cgroup(memory_limit=GIGABYTE, memory_used=0), config=Config(limits=Limits(max_rss_mb=200)))
    assert ids_in(enough) == []
    assert "memory-workers-may-exceed" in ids_in(replace(enough, workers=5))


def test_doctor_counts_only_processors_allowed_by_cgroup_and_affinity() -> None:
    few = replace(with_process(processors=2), workers=8, are_workers_set=False)
    assert seen_in(few, "cpu-workers-by-machine") == "8 workers, and 2 of 8 processors"
    assert ids_in(replace(few, are_workers_set=True)) == []
    half = replace(with_cgroup(cpu_limit=0.5), workers=1, are_workers_set=False)
    assert ids_in(half) == []


def test_a_clock_offset_counts_only_beyond_the_error_of_its_measurement() -> None:
    assert WELL.server is not None
    near = replace(WELL.server, clock_offset_seconds=1.4, clock_error_seconds=0.5)
    assert ids_in(replace(WELL, server=near)) == []
    ahead = replace(WELL.server, clock_offset_seconds=-90.0)
    assert seen_in(replace(WELL, server=ahead), "clock-offset") == (
        "the clock of this machine is 1 m 30 s ahead of that of Redis"
    )


# The unit


def test_the_recommended_grace_period_matches_the_documentation_and_the_unit() -> None:
    assert f"at least {GRACE_SECONDS:g} s longer" in (ROOT / "docs/service.md").read_text()
    unit = (ROOT / "deploy/systemd/rota.service").read_text()
    properties = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    properties |= {
        "TimeoutStopUSec": f"{properties['TimeoutStopSec']}s",
        "WatchdogUSec": f"{properties['WatchdogSec']}s",
    }
    assert ids_in(replace(WELL, unit=unit_of_properties("rota.service", properties))) == []


@pytest.mark.parametrize(
    ("seconds", "kind", "found"),
    [
        (40.0, "simple", []),
        (39.0, "simple", ["grace-tight"]),
        (34.0, "simple", ["grace-too-short"]),
        # No finding, because under a unit of type `notify` the master makes systemd wait longer.
        (34.0, "notify", ["grace-tight"]),
        (math.inf, "simple", []),
        (None, "simple", []),
    ],
)
def test_doctor_checks_that_the_grace_period_covers_the_whole_drain(
    seconds: float | None, kind: str, found: list[str]
) -> None:
    assert ids_in(with_unit(stop_seconds=seconds, type=kind)) == found


def test_a_grace_period_given_to_doctor_replaces_that_of_the_unit() -> None:
    assert ids_in(replace(with_unit(stop_seconds=10.0, type="simple"), grace_seconds=45.0)) == []
    assert ids_in(replace(WELL, grace_seconds=30.0)) == ["grace-too-short"]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("40s", 40.0),
        ("1min 30s", 90.0),
        ("2h 1min", 7260.0),
        ("500ms", 0.5),
        ("1d", 86_400.0),
        ("30000000", 30.0),
        ("infinity", math.inf),
        ("", None),
        ("soon", None),
        ("3 fortnights", None),
    ],
)
def test_time_spans_in_systemds_format_are_parsed(span: str, seconds: float | None) -> None:
    assert seconds_in(span) == seconds


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/rota.service\n", ("rota.service", False)),
        ("0::/system.slice/system-rota.slice/rota@mail.service/main\n", ("rota@mail.service", False)),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/rota.service\n", ("rota.service", True)),
        ("4:memory:/\n1:name=systemd:/system.slice/rota.service\n0::/\n", ("rota.service", False)),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", None),
        ("0::/kubepods/pod1\n", None),
        ("", None),
    ],
)
def test_the_systemd_unit_is_found_through_the_control_group(groups: str, unit: tuple[str, bool] | None) -> None:
    assert unit_in(groups) == unit


SYSTEMCTL = """#!/bin/sh
echo "$@" > "$0.args"
printf 'LoadState=loaded\\nType=notify-reload\\nTimeoutStopUSec=1min 30s\\nKillMode=mixed\\nOOMPolicy=continue\\n'
printf 'WatchdogUSec=30s\\n'
"""


def _program(folder: Path, text: str) -> None:
    (folder / "systemctl").write_text(text)
    (folder / "systemctl").chmod(0o755)


def test_doctor_reads_the_settings_of_a_unit_from_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, SYSTEMCTL)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    unread: list[Unread] = []
    unit = read_unit("rota.service", is_of_user=True, unread=unread)
    assert unread == []
    assert unit is not None
    assert (unit.type, unit.stop_seconds, unit.kill_mode) == ("notify-reload", 90.0, "mixed")
    assert (unit.oom_policy, unit.watchdog_seconds) == ("continue", 30.0)
    assert (tmp_path / "systemctl.args").read_text().split()[0] == "--user"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n", "not been booted with systemd"),
        ("#!/bin/sh\necho LoadState=not-found\n", "systemd does not have this unit: not-found"),
    ],
)
def test_doctor_reports_a_systemd_unit_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    _program(tmp_path, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    unread: list[Unread] = []
    assert read_unit("rota.service", is_of_user=False, unread=unread) is None
    assert why in unread[0].why


def test_without_systemctl_the_systemd_unit_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    unread: list[Unread] = []
    assert read_unit("rota.service", is_of_user=False, unread=unread) is None
    assert unread == [Unread("the unit rota.service", "this machine has no systemctl")]
