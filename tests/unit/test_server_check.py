"""The checks that determine whether a fleet can use a server."""

import pytest

from rota.server.address import Topology
from rota_supervisor.server_check import (
    fault_of_protocol,
    faults_of_adoption,
    faults_of_durability,
    faults_of_server,
    parse_info,
    version_of,
    warnings_of_durability,
    warnings_of_topology,
)

REDIS = "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{}\r\n"
VALKEY = "server_name:valkey\r\nredis_version:7.2.4\r\nvalkey_version:{}\r\nmaxmemory_policy:noeviction\r\n"


@pytest.mark.parametrize("release", ["7.0.15", "7.2.4", "8.0.0", "10.1"])
def test_redis_7_0_and_later_are_accepted(release: str) -> None:
    assert faults_of_server(parse_info(REDIS.format(release, "noeviction"))) == []


@pytest.mark.parametrize("release", ["6.2.14", "2.8", "unknown", ""])
def test_a_redis_before_7_0_is_refused_with_the_required_version(release: str) -> None:
    (fault,) = faults_of_server(parse_info(REDIS.format(release, "noeviction")))
    assert "too old" in fault
    assert "Redis 7.0" in fault


def test_valkey_is_judged_by_its_own_version() -> None:
    assert faults_of_server(parse_info(VALKEY.format("7.2.0"))) == []
    assert str(version_of(parse_info(VALKEY.format("9.1.0")))) == "Valkey 9.1.0"
    assert faults_of_server(parse_info(VALKEY.format("7.1.0")))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_with_an_eviction_policy_is_refused_with_advice(policy: str) -> None:
    (fault,) = faults_of_server(parse_info(REDIS.format("7.0.0", policy)))
    assert f"maxmemory-policy {policy}" in fault
    assert "set maxmemory-policy noeviction" in fault


def test_all_faults_are_reported_at_once() -> None:
    assert len(faults_of_server(parse_info(REDIS.format("5.0.0", "allkeys-lfu")))) == 2


@pytest.mark.parametrize("info", [REDIS.format("7.2.0", "noeviction"), VALKEY.format("7.2.0")])
def test_waitaof_is_refused_without_an_append_only_file(info: str) -> None:
    assert faults_of_durability(parse_info(info + "aof_enabled:1\r\n"), "waitaof") == []
    (fault,) = faults_of_durability(parse_info(info + "aof_enabled:0\r\n"), "waitaof")
    assert "set appendonly yes" in fault


def test_waitaof_is_refused_if_the_append_only_file_is_never_synced() -> None:
    info = parse_info(VALKEY.format("9.1.0") + "aof_enabled:1\r\nappendfsync:no\r\n")
    (fault,) = faults_of_durability(info, "waitaof")
    assert "set appendfsync always" in fault
    assert faults_of_durability(info, "wait") == []


@pytest.mark.parametrize(
    ("info", "warns"),
    [
        (VALKEY.format("9.1.2") + "appendfsync:everysec\r\n", True),
        (REDIS.format("7.4.1", "noeviction") + "appendfsync:everysec\r\n", True),
        (REDIS.format("8.0.2", "noeviction") + "appendfsync:everysec\r\n", False),
        (VALKEY.format("9.1.2") + "appendfsync:always\r\n", False),
        (VALKEY.format("9.1.2"), False),
    ],
)
def test_a_server_that_confirms_writes_before_fsync_causes_a_warning(info: str, warns: bool) -> None:
    warnings = warnings_of_durability(parse_info(info), "waitaof", failover=False)
    assert ["set appendfsync always" in warning for warning in warnings] == [True] * warns
    assert warnings_of_durability(parse_info(info), "none", failover=False) == []


def test_waitaof_is_refused_on_an_older_redis() -> None:
    old = parse_info(REDIS.format("7.0.15", "noeviction") + "aof_enabled:1\r\n")
    (fault,) = faults_of_durability(old, "waitaof")
    assert "Redis 7.0.15" in fault
    assert "needs Redis or Valkey 7.2" in fault
    assert faults_of_durability(old, "wait") == faults_of_durability(old, "none") == []


def test_a_missing_replica_causes_a_warning_if_durability_needs_one() -> None:
    alone, followed = {"connected_slaves": "0"}, {"connected_slaves": "1"}
    (warning,) = warnings_of_durability(alone, "wait", failover=False)
    assert "no replica" in warning
    assert warnings_of_durability(alone, "waitaof", failover=True)
    assert warnings_of_durability(alone, "waitaof", failover=False) == []
    assert warnings_of_durability(alone, "none", failover=True) == []
    assert warnings_of_durability(followed, "wait", failover=True) == []


def test_a_namespace_with_another_protocol_version_is_refused() -> None:
    assert fault_of_protocol("1", "shop") is None
    assert "'shop'" in (fault_of_protocol("7", "shop") or "")


def test_on_a_cluster_legacy_lists_must_have_the_hash_tag() -> None:
    cluster = parse_info(REDIS.format("7.2.0", "noeviction").replace("standalone", "cluster"))
    (fault,) = faults_of_adoption(cluster, "shop", ["queue:email", "{shop}queue:email"])
    assert '"queue:email" has no such tag' in fault
    assert "hash tag {shop}" in fault
    assert faults_of_adoption(parse_info(REDIS.format("7.2.0", "noeviction")), "shop", ["queue:email"]) == []


def test_a_url_that_names_one_node_of_a_cluster_causes_a_warning() -> None:
    alone = parse_info(REDIS.format("7.2.0", "noeviction"))
    in_cluster = alone | {"redis_mode": "cluster"}
    [warning] = warnings_of_topology(in_cluster, Topology.SINGLE)
    assert "begin redis_url with redis+cluster://" in warning
    assert warnings_of_topology(in_cluster, Topology.CLUSTER) == warnings_of_topology(alone, Topology.SINGLE) == []
