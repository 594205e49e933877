"""Redis users that lack permissions. A starting master reports all missing permissions before it does anything else."""

import asyncio
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import redis

import rota
from rota.protocol.keys import Keys
from rota.server.address import Topology, parse_address
from rota.server.connection import Connection
from rota_supervisor.acl_roles import AclRole, commands_of_adoption, needed_commands
from rota_supervisor.cli.audit_verb import find_strays
from rota_supervisor.config.model import Config
from rota_supervisor.exits import Failure
from rota_supervisor.server_check import check_server, faults_of_permissions, forbidden_commands
from support.servers import Server

NEEDED = needed_commands(AclRole.FLEET, "wait", Topology.SENTINEL)


@pytest.fixture(name="connection")
def _connection(server: Server, namespace: str, redis_client: "redis.Redis") -> Iterator[Connection]:
    allow(redis_client, namespace)
    made = Connection(parse_address(server.url.replace("//", "//fleet:secret@")))
    yield made
    made.close()
    redis_client.acl_deluser("fleet")


def allow(redis_client: "redis.Redis", namespace: str, *but: str) -> None:
    """Create the user `fleet` with the permissions that a fleet needs, except for these commands."""
    redis_client.acl_setuser(
        "fleet",
        enabled=True,
        reset=True,
        passwords=["+secret"],
        commands=["+eval", *(f"+{command.lower()}" for command in NEEDED if command not in but)],
        keys=[f"{{{namespace}}}:*"],
    )


def test_a_user_with_exactly_the_needed_commands_is_accepted(connection: Connection, namespace: str) -> None:
    assert forbidden_commands(connection, Keys(namespace).tasks, NEEDED) == []
    assert faults_of_permissions([]) == []


def test_each_missing_command_is_named(connection: Connection, redis_client: "redis.Redis", namespace: str) -> None:
    assert {"EVALSHA", "BLPOP", "SCAN", "ZSCAN", "INFO", "HSET", "ZRANGEBYSCORE", "TIME", "WAIT", "ROLE"} <= set(NEEDED)
    for command in NEEDED:
        allow(redis_client, namespace, command)
        assert forbidden_commands(connection, Keys(namespace).tasks, NEEDED) == [command]


def test_permission_for_wait_and_role_is_needed_only_if_settings_use_them() -> None:
    plain = set(needed_commands(AclRole.FLEET, "none", Topology.SINGLE))
    assert not plain & {"WAIT", "WAITAOF", "ROLE"}
    assert set(needed_commands(AclRole.FLEET, "waitaof", Topology.SENTINEL)) - plain == {"WAITAOF", "ROLE"}


def test_all_missing_commands_are_reported_with_the_acl_rule(
    connection: Connection, redis_client: "redis.Redis", namespace: str
) -> None:
    allow(redis_client, namespace, "BLPOP", "SCAN")
    (fault,) = faults_of_permissions(forbidden_commands(connection, Keys(namespace).tasks, NEEDED))
    assert "BLPOP, SCAN" in fault
    assert fault.endswith("ACL SETUSER <user> +blpop +scan")


@pytest.mark.parametrize(
    ("commands", "all_that_is_missing"),
    [(["+@all", "-info", "-scan", "-hget"], {"info", "scan", "hget"}), (["+info"], {"eval", *map(str.lower, NEEDED)})],
)
def test_a_check_also_reports_missing_commands_that_it_uses_itself(
    server: Server,
    redis_client: "redis.Redis",
    namespace: str,
    commands: list[str],
    all_that_is_missing: set[str],
) -> None:
    redis_client.acl_setuser(
        "fleet", enabled=True, reset=True, passwords=["+secret"], commands=commands, keys=[f"{{{namespace}}}:*"]
    )
    url = server.url.replace("//", "//fleet:secret@")
    with pytest.raises(Failure) as caught:
        check_server(Config(namespace=namespace, redis_url=url, durability="wait"), open_namespace=False)
    [message] = caught.value.messages
    assert set(re.findall(r"\+(\w+)", message)) >= all_that_is_missing - {"role"}
    redis_client.acl_deluser("fleet")


def test_a_forbidden_legacy_list_is_reported_with_the_acl_rule(
    connection: Connection, redis_client: "redis.Redis"
) -> None:
    needed = commands_of_adoption()
    assert {"TYPE", "LPOP", "ZREM"} <= set(needed)
    (fault,) = faults_of_permissions(forbidden_commands(connection, "queue:email", needed), "queue:email")
    assert "LPOP, TYPE" in fault
    assert fault.endswith("~queue:email")
    redis_client.acl_setuser("fleet", enabled=True, commands=[f"+{word.lower()}" for word in needed], keys=["queue:*"])
    assert forbidden_commands(connection, "queue:email", needed) == []


@pytest.mark.usefixtures("connection")
def test_the_asyncio_client_logs_in_and_reports_forbidden_commands(
    server: Server, redis_client: "redis.Redis", namespace: str
) -> None:
    async def program(password: str) -> None:
        url = server.url.replace("//", f"//fleet:{password}@")
        async with rota.AsyncClient(url, namespace) as client:
            await client.enqueue("work", queue="q", id="a")
            allow(redis_client, namespace, "BLPOP")
            with pytest.raises(rota.Unavailable, match=r"(?i)blpop"):
                await client.wait("a", timeout=30)

    asyncio.run(program("secret"))
    with pytest.raises(rota.Unavailable, match="refuses the user or the password: WRONGPASS"):
        asyncio.run(program("wrong"))


def test_a_misnamed_list_is_found_even_if_its_length_may_not_be_read(
    connection: Connection, redis_client: "redis.Redis", namespace: str
) -> None:
    key = f"{namespace}:queue:mail"
    redis_client.rpush(key, "[]")
    config = cast(Config, SimpleNamespace(namespace=namespace, adopt={}))
    (stray,) = find_strays(config, connection)
    assert (stray.key, stray.items) == (key, None)
    redis_client.delete(key)
