"""Which servers are fit for a fleet."""

import pytest

from rota_supervisor.server_check import fault_of_protocol, faults_of_server, parse_info, version_of

REDIS = "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{}\r\n"
VALKEY = "server_name:valkey\r\nredis_version:7.2.4\r\nvalkey_version:{}\r\nmaxmemory_policy:noeviction\r\n"


@pytest.mark.parametrize("release", ["7.0.15", "7.2.4", "8.0.0", "10.1"])
def test_redis_from_7_0_is_fit(release: str) -> None:
    assert faults_of_server(parse_info(REDIS.format(release, "noeviction"))) == []


@pytest.mark.parametrize("release", ["6.2.14", "2.8", "unknown", ""])
def test_older_redis_is_refused_with_what_is_needed(release: str) -> None:
    (fault,) = faults_of_server(parse_info(REDIS.format(release, "noeviction")))
    assert "too old" in fault
    assert "Redis 7.0" in fault


def test_valkey_is_judged_by_its_own_release() -> None:
    assert faults_of_server(parse_info(VALKEY.format("7.2.0"))) == []
    assert str(version_of(parse_info(VALKEY.format("9.1.0")))) == "Valkey 9.1.0"
    assert faults_of_server(parse_info(VALKEY.format("7.1.0")))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_drops_keys_is_refused_with_the_setting(policy: str) -> None:
    (fault,) = faults_of_server(parse_info(REDIS.format("7.0.0", policy)))
    assert f"maxmemory-policy {policy}" in fault
    assert "set maxmemory-policy noeviction" in fault


def test_all_faults_are_told_at_once() -> None:
    assert len(faults_of_server(parse_info(REDIS.format("5.0.0", "allkeys-lfu")))) == 2


def test_a_namespace_of_another_protocol_is_refused() -> None:
    assert fault_of_protocol(1, "shop") is None
    assert "'shop'" in (fault_of_protocol(7, "shop") or "")
