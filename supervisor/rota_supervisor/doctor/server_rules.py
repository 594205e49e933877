"""The findings about the server: its persistence, memory, connections, replicas and latency."""

from collections.abc import Iterator, Mapping
from typing import Final

from rota.durations import in_words
from rota_supervisor.doctor.findings import Finding
from rota_supervisor.doctor.readings import Examination, LatencyEvent, ServerReading
from rota_supervisor.master_snapshot import is_slow
from rota_supervisor.server_check import eviction_policy_of, faults_of_eviction, is_in_cluster

MEGABYTE: Final = 1 << 20
LOW_MEMORY_SHARE: Final = 0.8
FULL_MACHINE_SHARE: Final = 0.9
SHORT_TIMEOUT_SECONDS: Final = 3600  # application connections may be idle for an hour or longer, for example at night
LOW_CLIENTS_SHARE: Final = 0.9
BEHIND_SECONDS: Final = 10
SLOW_FORK_SECONDS: Final = 0.5
SLOW_EVENT_MS: Final = 100
RECENT_SECONDS: Final = 3600
MOST_EVENTS: Final = 3
_ONLINE: Final = "online"
_FULL_COVERAGE: Final = "cluster-require-full-coverage"
_WELL: Final = "ok"
# The fields of INFO that show whether the last save succeeded.
_OUTCOMES: Final = {
    "rdb_last_bgsave_status": "the last snapshot",
    "aof_last_bgrewrite_status": "the last rewrite of the append-only file",
    "aof_last_write_status": "the last write to the append-only file",
}


def server(found: Examination) -> Iterator[Finding]:
    """Report all findings about the server. If the server could not be examined, there are none."""
    if found.server is not None:
        for rule in _RULES:
            yield from rule(found.server)
        yield from clients(found, found.server)


def fitness(reading: ServerReading) -> Iterator[Finding]:
    """Report why a master would refuse to start with the server, and warnings about the durability of the server's
    data."""
    of_eviction = faults_of_eviction(reading.info)
    if of_eviction:
        yield Finding("redis-evicts-keys", f"maxmemory-policy is {eviction_policy_of(reading.info)}")
    for fault in reading.faults:
        if fault not in of_eviction:
            yield Finding("redis-unfit", fault)
    for warning in reading.warnings:
        yield Finding("redis-durability", warning)


def persistence(reading: ServerReading) -> Iterator[Finding]:
    """Report data that would be lost if the server crashed, and saves that failed."""
    info = reading.info
    settings = reading.settings
    has_log = info.get("aof_enabled") == "1"
    saves = settings.get("save")
    if info and not has_log and saves == "":
        yield Finding("redis-not-persistent", 'appendonly is no, and save is ""')
    elif info and not has_log and saves:
        yield Finding("redis-snapshots-only", f"appendonly is no, and save is {saves}")
    if has_log and settings.get("appendfsync") == "no":
        yield Finding("redis-never-syncs", "appendfsync is no")
    for field, what in _OUTCOMES.items():
        if info.get(field, _WELL) != _WELL and (has_log or not field.startswith("aof")):
            yield Finding("redis-save-failed", f"{what} failed ({field}: {info[field]})")
    fork_seconds = _whole(info, "latest_fork_usec") / 1e6
    if fork_seconds >= SLOW_FORK_SECONDS:
        yield Finding("redis-fork-slow", f"the last fork took {in_words(fork_seconds)}")


def memory(reading: ServerReading) -> Iterator[Finding]:
    """Report server memory that is used up, nearly used up, or not limited."""
    info = reading.info
    used, limit, machine = (_whole(info, name) for name in ("used_memory", "maxmemory", "total_system_memory"))
    if limit and used >= limit:
        yield Finding("redis-memory-full", f"{_megabytes(used)} of {_megabytes(limit)} (maxmemory) are in use")
    elif limit and used > LOW_MEMORY_SHARE * limit:
        yield Finding("redis-memory-low", f"{_megabytes(used)} of {_megabytes(limit)} (maxmemory) are in use")
    elif info and not limit:
        yield Finding("redis-memory-unlimited", f"maxmemory is 0, and {_megabytes(used)} are in use")
    resident = _whole(info, "used_memory_rss")
    if machine and resident > FULL_MACHINE_SHARE * machine:
        yield Finding("redis-memory-machine", f"the server takes {_megabytes(resident)} of {_megabytes(machine)}")


def connections(reading: ServerReading) -> Iterator[Finding]:
    """Report settings that make the server close idle connections too early, or keep dead connections forever."""
    timeout = _whole(reading.settings, "timeout")
    if 0 < timeout < SHORT_TIMEOUT_SECONDS:
        yield Finding("redis-timeout", f"timeout is {timeout}")
    if reading.settings.get("tcp-keepalive") == "0":
        yield Finding("redis-keepalive-off", "tcp-keepalive is 0")


def clients(found: Examination, reading: ServerReading) -> Iterator[Finding]:
    """Report if too few connections are free for this fleet."""
    limit = _whole(reading.settings, "maxclients") or _whole(reading.info, "maxclients")
    used = _whole(reading.info, "connected_clients")
    # A worker has one connection. A worker that runs several tasks at once has another, on which it waits for its
    # doorbell. A master has two.
    needed = 0 if found.process.is_master else 2 * found.workers + 2
    if limit and (used + needed > limit or used > LOW_CLIENTS_SHARE * limit):
        more = f", but this fleet needs up to {needed} more" if needed else ""
        yield Finding("redis-clients-low", f"{used} of {limit} connections (maxclients) are in use{more}")


def replicas(reading: ServerReading) -> Iterator[Finding]:
    """Report replicas that lag behind, and a server that refuses writes because it has too few replicas."""
    info = reading.info
    for name in (f"slave{number}" for number in range(_whole(info, "connected_slaves"))):
        fields = dict(part.split("=", 1) for part in info.get(name, "").split(",") if "=" in part)
        state = fields.get("state", _ONLINE)
        lag = _whole(fields, "lag")
        if state != _ONLINE or lag > BEHIND_SECONDS:
            place = f"{fields.get('ip', '?')}:{fields.get('port', '?')}"
            yield Finding("redis-replica-behind", f"the replica {place} is {state}, {lag} s behind")
    wanted = _whole(reading.settings, "min-replicas-to-write")
    good = _whole(info, "min_slaves_good_slaves") if "min_slaves_good_slaves" in info else None
    if wanted and good is not None and good < wanted:
        yield Finding(
            "redis-replicas-missing", f"min-replicas-to-write is {wanted}, but only {good} replicas are up to date"
        )


def cluster(reading: ServerReading) -> Iterator[Finding]:
    """Report a URL that names only one node of a cluster, and a cluster that stops if any part of it is lost."""
    if reading.is_one_of_cluster:
        yield Finding("redis-cluster-one-node", "redis_url begins with redis:// or rediss://")
    if is_in_cluster(reading.info) and reading.settings.get(_FULL_COVERAGE) == "yes":
        yield Finding("redis-cluster-coverage", f"{_FULL_COVERAGE} is yes")


def latency(reading: ServerReading) -> Iterator[Finding]:
    """Report a slow server, and events of the last hour that blocked it."""
    if reading.round_trips:
        quickest = min(reading.round_trips)
        slowest = max(reading.round_trips)
        if is_slow(quickest):
            many = len(reading.round_trips)
            seen = f"the fastest of {many} round trips took {in_words(quickest)}, the slowest {in_words(slowest)}"
            yield Finding("redis-slow", seen)
    recent = [event for event in reading.latency_events or () if _is_recent(event, reading)]
    for event in sorted(recent, key=lambda each: -each.latest_ms)[:MOST_EVENTS]:
        ago = in_words(max(0.0, reading.at - event.at))
        seen = f"{event.name} took {event.latest_ms} ms, {ago} ago; the longest took {event.highest_ms} ms"
        yield Finding("redis-latency-events", seen)


def _is_recent(event: LatencyEvent, reading: ServerReading) -> bool:
    return event.latest_ms >= SLOW_EVENT_MS and reading.at - event.at <= RECENT_SECONDS


def server_machine(found: Examination) -> Iterator[Finding]:
    """If the server's process is visible on this machine, report kernel settings that are bad for Redis."""
    reading = found.server
    if reading is None or reading.uses_huge_pages is None:
        return
    pid = reading.info.get("process_id", "?")
    if reading.uses_huge_pages and found.machine.huge_pages == "always":
        yield Finding("redis-machine-thp", f"enabled is always, and THP_enabled is 1 for process {pid}")
    forks = reading.info.get("aof_enabled") == "1" or bool(reading.settings.get("save"))
    if forks and found.machine.overcommit == 0:
        yield Finding("redis-machine-overcommit", "vm.overcommit_memory is 0, and the server forks to save")


def _whole(fields: Mapping[str, str], name: str) -> int:
    """Return a field as a number, or 0 if it is missing or not a whole number."""
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else 0


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.0f} MB"


_RULES: Final = (fitness, persistence, memory, connections, replicas, cluster, latency)
RULES: Final = (server, server_machine)
