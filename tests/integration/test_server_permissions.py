"""A user whom the ACL forbids something: a master that starts says what, all of it, before it does anything."""

from collections.abc import Iterator

import pytest
import redis

from rota.server.address import parse_address
from rota.server.connection import Connection
from rota_supervisor.server_permissions import faults_of_permissions, forbidden_commands, needed_commands
from servers import Server


@pytest.fixture(name="connection")
def _connection(server: Server, namespace: str, redis_client: "redis.Redis") -> Iterator[Connection]:
    allow(redis_client, namespace)
    made = Connection(parse_address(server.url.replace("//", "//fleet:secret@")))
    yield made
    made.close()
    redis_client.acl_deluser("fleet")


def allow(redis_client: "redis.Redis", namespace: str, *but: str) -> None:
    """Give the user of the fleet what it needs and nothing else, and of that not these commands."""
    redis_client.acl_setuser(
        "fleet",
        enabled=True,
        reset=True,
        passwords=["+secret"],
        commands=["+eval", "+info", *(f"+{command.lower()}" for command in needed_commands() if command not in but)],
        keys=[f"{{{namespace}}}:*"],
    )


def test_a_user_with_exactly_what_is_needed_is_fit(connection: Connection, namespace: str) -> None:
    assert forbidden_commands(connection, namespace) == []
    assert faults_of_permissions([]) == []


def test_each_missing_command_is_named(connection: Connection, redis_client: "redis.Redis", namespace: str) -> None:
    assert {"EVALSHA", "BLPOP", "SCAN", "HSET", "ZRANGEBYSCORE", "TIME"} <= set(needed_commands())
    for command in needed_commands():
        allow(redis_client, namespace, command)
        assert forbidden_commands(connection, namespace) == [command]


def test_all_that_is_missing_is_told_at_once_with_what_to_do(
    connection: Connection, redis_client: "redis.Redis", namespace: str
) -> None:
    allow(redis_client, namespace, "BLPOP", "SCAN")
    (fault,) = faults_of_permissions(forbidden_commands(connection, namespace))
    assert "BLPOP, SCAN" in fault
    assert fault.endswith("ACL SETUSER <user> +blpop +scan")
