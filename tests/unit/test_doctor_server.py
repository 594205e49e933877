"""The findings of `rota doctor` about a server. The tests provide the server's replies as records."""

from dataclasses import replace

import pytest

from rota_supervisor.doctor.readings import LatencyEvent
from support.examinations import (
    GIGABYTE,
    INFO,
    MEGABYTE,
    NOW,
    SETTINGS,
    WELL,
    ids_in,
    seen_in,
    with_info,
    with_server,
    with_settings,
)


def test_a_server_that_reveals_nothing_causes_no_findings() -> None:
    assert (
        ids_in(with_server(info={}, settings={}, latency_events=None, round_trips=(), clock_offset_seconds=None)) == []
    )
    assert ids_in(replace(WELL, server=None)) == []


def test_without_config_only_values_from_info_are_checked() -> None:
    hidden = with_server(settings={}, info={**INFO, "aof_enabled": "0"})
    assert ids_in(hidden) == []  # without CONFIG, it is not known whether the server saves its data
    full = with_server(settings={}, info={**INFO, "used_memory": str(4 * GIGABYTE)})
    assert ids_in(full) == ["redis-memory-full"]


def test_an_eviction_policy_is_reported_only_once() -> None:
    fault = (
        "the server drops keys when its memory is full (maxmemory-policy allkeys-lru), and tasks with them: set "
        "maxmemory-policy noeviction in its configuration"
    )
    found = with_server(info={**INFO, "maxmemory_policy": "allkeys-lru"}, faults=(fault, "it is too old"))
    assert ids_in(found) == ["redis-evicts-keys", "redis-unfit"]
    assert seen_in(found, "redis-unfit") == "it is too old"


@pytest.mark.parametrize("field", ["aof_last_write_status", "aof_last_bgrewrite_status"])
def test_an_aof_failure_is_ignored_once_the_aof_is_disabled(field: str) -> None:
    assert ids_in(with_info(**{field: "err"})) == ["redis-save-failed"]
    assert "redis-save-failed" not in ids_in(with_info(**{field: "err", "aof_enabled": "0"}))


def test_redis_memory_counts_as_low_when_four_fifths_are_used() -> None:
    assert ids_in(with_info(maxmemory=str(1000 * MEGABYTE), used_memory=str(800 * MEGABYTE))) == []
    low = with_info(maxmemory=str(1000 * MEGABYTE), used_memory=str(801 * MEGABYTE))
    assert seen_in(low, "redis-memory-low") == "801 MB of 1,000 MB (maxmemory) are in use"


def test_a_long_client_timeout_of_the_server_causes_no_finding() -> None:
    assert ids_in(with_settings({"timeout": "3600"})) == []


def test_doctor_counts_the_connections_that_workers_will_need() -> None:
    assert WELL.server is not None
    tight = replace(WELL.server, settings={**SETTINGS, "maxclients": "28"})
    found = replace(WELL, server=tight)
    assert ids_in(found) == []
    to_start = replace(found, process=replace(found.process, is_master=False))
    assert seen_in(to_start, "redis-clients-low") == (
        "20 of 28 connections (maxclients) are in use, but this fleet needs up to 10 more"
    )


def test_each_replica_is_judged_by_its_state_and_its_lag() -> None:
    replicas = {
        "connected_slaves": "3",
        "slave0": "ip=10.0.0.7,port=6379,state=online,offset=90,lag=0",
        "slave1": "ip=10.0.0.8,port=6379,state=online,offset=10,lag=14",
        "slave2": "ip=10.0.0.9,port=6379,state=send_bulk,offset=0,lag=0",
    }
    assert ids_in(with_info(**replicas)) == ["redis-replica-behind"] * 2
    one = {"connected_slaves": "1", "slave0": replicas["slave1"]}
    assert seen_in(with_info(**one), "redis-replica-behind") == "the replica 10.0.0.8:6379 is online, 14 s behind"


def test_a_slow_server_is_judged_by_its_quickest_reply() -> None:
    assert ids_in(with_server(round_trips=(0.002, 3.0))) == []
    slow = with_server(round_trips=(0.2, 0.05))
    assert seen_in(slow, "redis-slow") == "the fastest of 2 round trips took 50 ms, the slowest 0.2 s"


def test_only_recent_latency_events_are_reported_longest_first() -> None:
    events = [
        LatencyEvent("fork", int(NOW) - 30, 150, 150),
        LatencyEvent("command", int(NOW) - 7200, 900, 900),
        LatencyEvent("aof-write", int(NOW) - 60, 40, 700),
        LatencyEvent("expire-cycle", int(NOW) - 10, 300, 300),
    ]
    found = with_server(latency_events=tuple(events))
    assert ids_in(found) == ["redis-latency-events"] * 2


def test_the_kernel_of_a_remote_server_is_not_checked() -> None:
    elsewhere = with_server(uses_huge_pages=None, is_local=False)
    assert ids_in(replace(elsewhere, machine=replace(elsewhere.machine, overcommit=0))) == []


def test_malformed_numbers_in_redis_info_cause_no_findings() -> None:
    assert ids_in(with_info(used_memory="many", connected_clients="-", latest_fork_usec="")) == []
