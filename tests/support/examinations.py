"""Records of a healthy fleet, as `rota doctor` collects them. A test can change individual values."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rota.protocol.nodes import Node, NodeReport, heartbeat_of, parse_nodes
from rota.protocol.tiers import QueueShare, domain_of
from rota_supervisor.cgroups import CgroupReading
from rota_supervisor.config.model import Config
from rota_supervisor.doctor.diagnosis import diagnose
from rota_supervisor.doctor.readings import (
    Examination,
    FleetReading,
    MachineReading,
    ProcessReading,
    ServerReading,
    SharedMemoryReading,
    UnitReading,
)

GIGABYTE: Final = 1 << 30
MEGABYTE: Final = 1 << 20
WORKERS: Final = 4
NOW: Final = 1_800_000_000.0

PROCESS: Final = ProcessReading(
    pid=411,
    is_master=True,
    user_id=1000,
    open_files=65_536,
    processes=30_000,
    processors=8,
    user_threads=200,
    cgroup=CgroupReading(version=2, path="/system.slice/rota.service"),
)
MACHINE: Final = MachineReading(
    processors=8,
    memory=16 * GIGABYTE,
    memory_available=12 * GIGABYTE,
    threads_limit=100_000,
    threads_used=900,
    huge_pages="madvise",
    overcommit=1,
    shared_memory=SharedMemoryReading(8 * GIGABYTE, 8 * GIGABYTE, is_writable=True),
)
INFO: Final = {
    "redis_version": "7.2.4",
    "process_id": "7",
    "role": "master",
    "maxmemory": str(4 * GIGABYTE),
    "maxmemory_policy": "noeviction",
    "used_memory": str(100 * MEGABYTE),
    "used_memory_rss": str(120 * MEGABYTE),
    "total_system_memory": str(8 * GIGABYTE),
    "connected_clients": "20",
    "connected_slaves": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "latest_fork_usec": "1200",
}
SETTINGS: Final = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "3600 1 300 100",
    "timeout": "0",
    "tcp-keepalive": "300",
    "maxclients": "10000",
    "min-replicas-to-write": "0",
}
SERVER: Final = ServerReading(
    INFO,
    SETTINGS,
    round_trips=(0.0004, 0.0003, 0.002),
    at=NOW,
    clock_offset_seconds=0.002,
    clock_error_seconds=0.0002,
    latency_events=(),
    is_local=True,
    uses_huge_pages=False,
)
UNIT: Final = UnitReading(
    "rota.service",
    type="notify-reload",
    stop_seconds=40.0,
    kill_mode="mixed",
    oom_policy="continue",
    watchdog_seconds=30.0,
)
STATUS: Final[Mapping[str, Any]] = {"ready": {"ok": True, "checks": [], "warnings": []}, "last_reload": None}
WELL: Final = Examination(
    Config(),
    WORKERS,
    True,
    PROCESS,
    MACHINE,
    SERVER,
    UNIT,
    fleet=FleetReading(STATUS, missing_tasks=0),
)


def with_process(**changes: Any) -> Examination:
    """Return an examination of a healthy fleet, with these changes to the values of the doctor's process."""
    return replace(WELL, process=replace(PROCESS, **changes))


def with_cgroup(**changes: Any) -> Examination:
    return with_process(cgroup=replace(PROCESS.cgroup, **changes))


def with_machine(**changes: Any) -> Examination:
    return replace(WELL, machine=replace(MACHINE, **changes))


def with_server(**changes: Any) -> Examination:
    return replace(WELL, server=replace(SERVER, **changes))


def with_info(**changes: str) -> Examination:
    return with_server(info={**INFO, **changes})


def with_settings(settings: Mapping[str, str], **info: str) -> Examination:
    return with_server(settings={**SETTINGS, **settings}, info={**INFO, **info})


def with_unit(**changes: Any) -> Examination:
    return replace(WELL, unit=replace(UNIT, **changes))


def with_fleet(**changes: Any) -> Examination:
    return replace(WELL, fleet=replace(WELL.fleet, **changes))


def with_nodes(*nodes: Node, **changes: Any) -> Examination:
    return with_fleet(nodes=nodes, **changes)


def node(
    name: str,
    tasks: Collection[str] = ("resize",),
    tiers: Sequence[Sequence[str | QueueShare]] = (("images",), ("default",)),
    *,
    left_seconds: float = 18.0,
    lease_seconds: float = 20.0,
    **report: Any,
) -> Node:
    """Return a node as a reader of its heartbeat would see it. The heartbeat is written as JSON and parsed again."""
    shares = [[QueueShare(each) if isinstance(each, str) else each for each in tier] for tier in tiers]
    served = [each.name for tier in shares for each in tier]
    domains = [domain_of(tier, served) for tier in shares]
    said = NodeReport(**{"state": "running", "version": "0.1.0", **report})
    heartbeat = heartbeat_of(7, {"default": domains}, said, lease_seconds, tasks)
    (found,) = parse_nodes([name.encode(), heartbeat, round(left_seconds * 1e6)])
    return found


def foreign_node(name: str, **fields: Any) -> Node:
    """Return a node with a heartbeat that another program wrote."""
    (found,) = parse_nodes([name.encode(), json.dumps(fields).encode(), 18_000_000])
    return found


def ids_in(found: Examination) -> list[str]:
    """Return the ids of all findings of an examination."""
    return [finding.id for finding in diagnose(found)]


def seen_in(found: Examination, kind: str) -> str:
    """Return the text `seen` of the only finding whose id is `kind`. The text says what the doctor observed."""
    (seen,) = [finding.seen for finding in diagnose(found) if finding.id == kind]
    return seen
