"""Passwords, keys and tokens in all places from which a fleet reads them. Nothing that the fleet writes or shows
contains one of them.
"""

import re
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from rota_supervisor.acl_roles import AclRole
from support.acl_users import execute, read_user, rules_for
from support.fleet_process import DEADLINE_SECONDS
from support.fleets import UNSIGNED, RunningFleet
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.waiting import until

pytestmark = ON_ONE_SERVER

MARK: Final = "s3cr3t"  # a part of each secret
KEY: Final = f"{MARK}-signing-key-0123456789-0123456789"
TOKEN: Final = f"{MARK}-token-of-the-port"
READ_TOKEN: Final = f"{MARK}-token-that-only-reads"
COMMANDS: Final = [
    *(["check"], ["config", "print"], ["config", "print", "--json"], ["status"], ["status", "--json"], ["queue", "ls"]),
    *(["audit"], ["doctor", "--json"], ["acl"], ["task", "enqueue", "note", "c"], ["events", "--json"], ["cron", "ls"]),
]


def password(kind: str) -> str:
    return f"{MARK}-password-{kind}"


@pytest.fixture(params=["files", "environment"])
def planted(
    request: pytest.FixtureRequest, server: Server, namespace: str, tmp_path: Path, redis_client: redis.Redis
) -> Iterator[RunningFleet]:
    """Yield a fleet that is not started yet. With the parameter `files`, all of its secrets are in files. With the
    parameter `environment`, its URL and its signing key are in environment variables instead.
    """
    user = f"user-{namespace}"
    rules = " ".join(rules_for(AclRole.FLEET)).split()
    execute(redis_client, "ACL", "SETUSER", user, "on", f">{password(request.param)}", *rules)
    fleet = RunningFleet(server.url, namespace, tmp_path, redis_url=server.url, signing=UNSIGNED)
    del fleet.settings["redis_url"]
    url = server.url.replace("://", f"://{user}:{password(request.param)}@")
    for name, text in {"token": TOKEN, "read-token": READ_TOKEN, "url": url, "key": KEY}.items():
        (tmp_path / name).write_text(f"{text}\n")
    http = {"listen": "127.0.0.1:0", "token_file": "token", "read_token_file": "read-token", "actions": True}
    settings: dict[str, Any] = {"http": http, "events": {"enabled": True}, "log": {"level": "debug"}}
    if request.param == "files":
        fleet.edit(redis_url_file="url", signing=signing_with(f"file:{tmp_path / 'key'}"), **settings)
    else:
        fleet.environment |= {"ROTA_REDIS_URL": url, "OUR_KEY": KEY}
        fleet.edit(signing=signing_with("env:OUR_KEY"), **settings)
    yield fleet
    fleet.close()
    redis_client.acl_deluser(user)


def signing_with(source: str) -> dict[str, Any]:
    return {"keys": {"first": source}, "sign_with": "first", "required": True}


def get(fleet: RunningFleet, path: str) -> str:
    """Return the response of an endpoint to a request with the token."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"http://{fleet.target()}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
        return f"{response.headers}{response.read().decode()}"


def make_trouble(fleet: RunningFleet, admin: redis.Redis) -> None:
    """Let the fleet report errors that concern its secrets."""
    fleet.client.enqueue("note", args=["unsigned"], queue="default")  # dead, because its signature is missing
    until(lambda: fleet.log("task.dead"), "a dead task")
    user = f"user-{fleet.namespace}"
    hashes = read_user(admin, user)["passwords"]
    execute(admin, "ACL", "SETUSER", user, "resetpass")
    execute(admin, "CLIENT", "KILL", "USER", user)
    until(lambda: fleet.log("redis.lost"), "the refusal of the password")
    before = dict(fleet.settings)
    for setting in (
        {"redis_tls_ca": f"redis://user:{MARK}@host"},
        {"signing": signing_with(KEY)},
        {"http": {"token": TOKEN}},
    ):
        rejected = len(fleet.log("config.rejected"))
        fleet.edit(**setting)
        assert MARK not in fleet.rota("reload").stderr
        fleet.hup()
        until(lambda: len(fleet.log("config.rejected")) > rejected, f"the rejection of {setting}")  # noqa: B023
        fleet.settings = dict(before)
    fleet.edit()
    execute(admin, "ACL", "SETUSER", user, *(f"#{each}" for each in hashes))
    until(fleet.is_whole, "a fleet that is connected again", 60)


def outputs(fleet: RunningFleet, admin: redis.Redis) -> Iterator[tuple[str, str]]:
    """Yield everything that the fleet writes or shows, each with its name."""
    variables = {name: text for name, text in fleet.environment.items() if name in ("ROTA_REDIS_URL", "OUR_KEY")}
    for command in [*COMMANDS, ["doctor", "--bundle", "support.tar.gz"]]:
        done = fleet.rota(*command, **variables)
        assert done.returncode in (0, 1), (command, done.stderr)
        yield " ".join(command), done.stdout + done.stderr
    for path in ("/metrics", "/status.json", "/dead.json", "/", "/livez", "/readyz"):
        yield path, get(fleet, path)
    for process in fleet.processes():
        yield f"ps {process.pid}", " ".join([process.name(), *process.cmdline()])
    yield "log", fleet.log_text()
    with tarfile.open(fleet.folder / "support.tar.gz") as archive:
        for entry in archive:
            member = archive.extractfile(entry)
            yield entry.name, "" if member is None else member.read().decode(errors="replace")
    for key in admin.scan_iter(match=f"{{{fleet.namespace}}}*"):
        yield f"Redis {key!r}", repr(admin.dump(key))
    secret_files = {"token", "read-token", "url", "key", "rota.toml"}
    for file in fleet.folder.iterdir():
        if file.is_file() and file.name not in secret_files:
            yield file.name, file.read_bytes().decode(errors="replace")


def test_nothing_that_a_fleet_writes_or_shows_contains_a_secret(
    planted: RunningFleet, redis_client: redis.Redis
) -> None:
    planted.launch()
    until(lambda: len(planted.workers()) == 2, "two workers", DEADLINE_SECONDS)
    make_trouble(planted, redis_client)
    shown = dict(outputs(planted, redis_client))
    assert {"log", f"ps {planted.pid}", "/metrics", "config print"} <= shown.keys()
    found = {name: re.findall(rf".{{0,60}}{MARK}.{{0,30}}", text) for name, text in shown.items() if MARK in text}
    assert found == {}
