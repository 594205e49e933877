"""Servers that a fleet cannot use. Both `rota check` and a starting master report the reason and the remedy."""

from pathlib import Path

import pytest
import redis

from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server_check import check_server
from support.servers import Server, free_port
from support.waiting import until


@pytest.fixture(name="own_server")
def _own_server(server: Server, tmp_path: Path) -> Server:
    """Return another server of this kind, which is not started yet. The test may damage it."""
    return Server(server.binary, tmp_path)


def _checked(server: Server) -> list[str]:
    server.start()
    try:
        return check_server(Config(redis_url=server.url), open_namespace=False).warnings
    finally:
        server.stop()


def _fault(url: str) -> tuple[ExitCode, str]:
    with pytest.raises(Failure) as caught:
        check_server(Config(redis_url=url), open_namespace=False)
    [message] = caught.value.messages
    return caught.value.code, message


def test_rota_check_refuses_a_server_that_is_a_replica(own_server: Server) -> None:
    own_server.options["replicaof"] = f"127.0.0.1 {free_port()}"
    with pytest.raises(Failure) as caught:
        _checked(own_server)
    assert caught.value.code == ExitCode.UNREACHABLE
    assert "is a replica and accepts no writes: set redis_url" in caught.value.messages[0]


def test_rota_check_reports_a_server_that_refuses_writes(own_server: Server, tmp_path: Path) -> None:
    (folder := tmp_path / "data").mkdir()
    own_server.options |= {"save": "900 1", "enable_protected_configs": "local"}
    own_server.start()
    with redis.Redis(port=own_server.port) as client:
        client.config_set("dir", str(folder))
        folder.rmdir()
        client.set("a", "b")
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        code, message = _fault(own_server.url)
    own_server.stop()
    assert code == ExitCode.UNREACHABLE
    assert "refuses writes: MISCONF" in message
    assert message.endswith(": fix the cause that the server's log shows, such as a full disk or a missing folder")


def test_rota_check_warns_about_a_server_whose_memory_is_full(own_server: Server) -> None:
    own_server.options |= {"maxmemory": "600kb", "maxmemory_policy": "noeviction"}
    assert _checked(own_server) == [
        "the server uses all of its maxmemory (614400 bytes), so no task can be enqueued: raise maxmemory"
    ]


def test_rota_check_does_not_warn_about_a_server_with_free_memory(own_server: Server) -> None:
    own_server.options |= {"maxmemory": "100mb", "maxmemory_policy": "noeviction"}
    assert _checked(own_server) == []


def test_rota_check_reports_a_database_number_that_does_not_exist(server: Server) -> None:
    code, message = _fault(server.url.replace("/0", "/99"))
    assert code == ExitCode.UNREACHABLE
    assert "has no such database" in message
    assert "use a lower number" in message


def test_missing_key_permissions_are_reported_with_the_acl_rule(server: Server, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser(
        "stranger", enabled=True, reset=True, passwords=["+secret"], commands=["+@all"], keys=["other:*"]
    )
    code, message = _fault(server.url.replace("//", "//stranger:secret@"))
    redis_client.acl_deluser("stranger")
    assert code == ExitCode.CONFIG
    assert message.endswith("its ACL forbids the user 'stranger' the keys {rota}:*: ACL SETUSER stranger ~{rota}:*")
