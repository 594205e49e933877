"""Each finding of `rota doctor` appears if, and only if, the records contain the cause of the finding."""

import inspect
import re
from dataclasses import replace
from typing import Final

import pytest

from rota_supervisor.cli import examination as checks
from rota_supervisor.config.model import Config, Limits
from rota_supervisor.doctor import fleet_rules, machine_rules, server_rules
from rota_supervisor.doctor.finding_kinds import FINDINGS, Severity
from rota_supervisor.doctor.findings import Finding, exit_code_of, in_order
from rota_supervisor.doctor.readings import Examination, LatencyEvent, SharedMemoryReading
from rota_supervisor.exits import ExitCode
from support.examinations import (
    GIGABYTE,
    MEGABYTE,
    NOW,
    STATUS,
    WELL,
    ids_in,
    node,
    with_cgroup,
    with_fleet,
    with_info,
    with_machine,
    with_nodes,
    with_process,
    with_server,
    with_settings,
    with_unit,
)

_GROWING: Final = replace(WELL, config=Config(limits=Limits(max_rss_mb=5000)))
_REFUSED: Final = {"result": "failure", "faults": ["workers: expected a number"]}
_NOT_READY: Final = {"ok": False, "checks": [{"name": "redis", "ok": False, "seen": "Redis is away"}], "warnings": []}

CASES: Final[dict[str, Examination]] = {
    "limit-too-low": with_process(open_files=32, is_master=False),
    "open-files-low": with_process(open_files=98),
    "processes-exhausted": with_cgroup(processes_limit=205, processes_used=205),
    "processes-low": with_cgroup(processes_limit=240, processes_used=200),
    "memory-too-small": with_cgroup(memory_limit=64 * MEGABYTE, memory_used=10 * MEGABYTE),
    "memory-low": with_cgroup(memory_limit=GIGABYTE, memory_used=1000 * MEGABYTE),
    "memory-workers-may-exceed": _GROWING,
    "memory-unbounded": with_cgroup(memory_limit=GIGABYTE, memory_used=100 * MEGABYTE),
    "memory-kills-together": with_cgroup(kills_together=True),
    "cpu-workers-by-machine": replace(with_cgroup(cpu_limit=2.0), workers=8, are_workers_set=False),
    "cpu-workers-many": with_cgroup(cpu_limit=0.5),
    "shm-unusable": with_machine(shared_memory=None),
    "shm-full": with_machine(shared_memory=SharedMemoryReading(GIGABYTE, MEGABYTE, is_writable=True)),
    "shm-small": with_machine(shared_memory=SharedMemoryReading(64 * MEGABYTE, 64 * MEGABYTE, is_writable=True)),
    "thp-always": with_machine(huge_pages="always"),
    "overcommit-strict": with_machine(overcommit=2),
    "clock-offset": with_server(clock_offset_seconds=-90.0),
    "grace-too-short": replace(WELL, grace_seconds=20.0),
    "grace-tight": with_unit(stop_seconds=30.0),
    "unit-kill-mode": with_unit(kill_mode="control-group"),
    "unit-oom-policy": with_unit(oom_policy="stop"),
    "unit-watchdog": with_unit(watchdog_seconds=1.0),
    "redis-unfit": with_server(faults=("the server is Redis 6.2.0, too old",)),
    "redis-evicts-keys": with_info(maxmemory_policy="allkeys-lru"),
    "redis-durability": with_server(warnings=('durability = "wait", and the server has no replica',)),
    "redis-not-persistent": with_settings({"save": ""}, aof_enabled="0"),
    "redis-snapshots-only": with_settings({}, aof_enabled="0"),
    "redis-never-syncs": with_settings({"appendfsync": "no"}),
    "redis-save-failed": with_info(rdb_last_bgsave_status="err"),
    "redis-fork-slow": with_info(latest_fork_usec="900000"),
    "redis-memory-full": with_info(used_memory=str(4 * GIGABYTE)),
    "redis-memory-low": with_info(used_memory=str(3500 * MEGABYTE)),
    "redis-memory-unlimited": with_info(maxmemory="0"),
    "redis-memory-machine": with_info(used_memory_rss=str(7900 * MEGABYTE)),
    "redis-timeout": with_settings({"timeout": "60"}),
    "redis-keepalive-off": with_settings({"tcp-keepalive": "0"}),
    "redis-clients-low": with_settings({"maxclients": "21"}),
    "redis-replica-behind": with_info(
        connected_slaves="1", slave0="ip=10.0.0.7,port=6379,state=wait_bgsave,offset=0,lag=0"
    ),
    "redis-replicas-missing": with_settings({"min-replicas-to-write": "1"}, min_slaves_good_slaves="0"),
    "redis-cluster-one-node": with_server(is_one_of_cluster=True),
    "redis-cluster-coverage": with_settings({"cluster-require-full-coverage": "yes"}, redis_mode="cluster"),
    "redis-slow": with_server(round_trips=(0.09, 0.08)),
    "redis-latency-events": with_server(latency_events=(LatencyEvent("fork", int(NOW) - 60, 400, 900),)),
    "redis-machine-thp": replace(with_server(uses_huge_pages=True), machine=with_machine(huge_pages="always").machine),
    "redis-machine-overcommit": with_machine(overcommit=0),
    "fleet-not-ready": with_fleet(status={**STATUS, "ready": _NOT_READY}),
    "fleet-not-seen": with_fleet(status=None, why_no_status="no master is listening"),
    "reload-refused": with_fleet(status={**STATUS, "last_reload": _REFUSED}),
    "tasks-missing": with_fleet(missing_tasks=3),
    "node-lost": with_nodes(node("web-1.aa", left_seconds=-40)),
    "namespace-shared": with_nodes(node("web-1.aa", ["resize"]), node("mail-1.bb", ["send"])),
    "namespace-two-fleets": with_nodes(node("web-1.aa", ["resize"]), node("mail-1.bb", ["send"], [["mail"]])),
    "nodes-code-differs": with_nodes(node("web-1.aa", ["resize"]), node("web-2.bb", ["resize", "crop"])),
    "nodes-versions-differ": with_nodes(node("web-1.aa", version="0.1.0"), node("web-2.bb", version="0.2.0")),
    "nodes-settings-differ": with_nodes(node("web-1.aa"), node("web-2.bb", tiers=[["default"], ["images"]])),
    "nodes-one-host": with_nodes(node("web-1.aa"), node("web-1.bb")),
}
# The findings that `rota doctor` takes from the checks of `rota check`. The checks need files, code and a server, so
# tests/process/test_doctor.py tests these findings.
OF_CHECKS: Final = {
    "configuration-invalid",
    "configuration-warning",
    "code-unusable",
    "http-certificate",
    "redis-unreachable",
    "redis-access",
}
# For each finding, the other findings that have the same cause.
ALSO: Final = {
    "limit-too-low": {"open-files-low"},
    "memory-low": {"memory-unbounded"},
    "redis-machine-thp": {"thp-always"},
}


def test_doctor_has_no_findings_about_a_healthy_fleet() -> None:
    assert ids_in(WELL) == []


@pytest.mark.parametrize("name", CASES)
def test_each_problem_causes_exactly_its_own_doctor_finding(name: str) -> None:
    assert set(ids_in(CASES[name])) == {name} | ALSO.get(name, set())


def test_every_doctor_finding_has_a_test_case() -> None:
    assert CASES.keys() | OF_CHECKS == FINDINGS.keys()


def test_every_doctor_finding_in_the_code_is_in_the_table() -> None:
    sources = "".join(map(inspect.getsource, (machine_rules, server_rules, fleet_rules, checks)))
    named = set(re.findall(r'(?:Finding|_all)\(\s*"([a-z-]+)"', sources))
    assert named <= FINDINGS.keys()
    assert len(named) > 40


@pytest.mark.parametrize("kind", FINDINGS.values(), ids=lambda kind: kind.id)
def test_each_doctor_finding_explains_its_meaning_and_its_remedy(kind: object) -> None:
    found = FINDINGS[kind.id]  # type: ignore[attr-defined]  # pytest passes it as an object
    for text in (found.means, found.remedy):
        assert text.endswith((".", "`."))
        assert "  " not in text
        assert text.isprintable()


def test_doctor_lists_the_worst_findings_first() -> None:
    names = ["shm-small", "redis-timeout", "redis-unreachable", "limit-too-low", "open-files-low"]
    ordered = [finding.id for finding in in_order(Finding(name, "") for name in names)]
    assert ordered == ["limit-too-low", "redis-unreachable", "open-files-low", "redis-timeout", "shm-small"]


@pytest.mark.parametrize(
    ("names", "strict", "code"),
    [
        ([], False, ExitCode.CLEAN),
        (["shm-small"], True, ExitCode.CLEAN),
        (["redis-timeout"], False, ExitCode.CLEAN),
        (["redis-timeout"], True, ExitCode.NO),
        (["tasks-missing", "redis-timeout"], False, ExitCode.NO),
        (["tasks-missing", "redis-unreachable"], False, ExitCode.UNREACHABLE),
        (["tasks-missing", "redis-unreachable", "code-unusable"], True, ExitCode.CONFIG),
        (["redis-evicts-keys"], False, ExitCode.CONFIG),
    ],
)
def test_the_most_severe_error_decides_the_exit_code_of_doctor(names: list[str], strict: bool, code: ExitCode) -> None:
    assert exit_code_of([Finding(name, "") for name in names], strict=strict) == code


def test_only_doctor_findings_that_are_errors_have_an_exit_code() -> None:
    others = [kind for kind in FINDINGS.values() if kind.severity is not Severity.ERROR]
    assert {kind.code for kind in others} == {ExitCode.NO}
