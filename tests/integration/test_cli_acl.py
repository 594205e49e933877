"""`rota acl` on a real server: the users that it prints and creates."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rota_supervisor.acl_roles import AclRole
from rota_supervisor.exits import ExitCode
from support.acl_users import execute, read_user
from support.command_line import Rota, rota_in, write_configuration
from support.servers import Server

_NAMES = ("shop-producer", "shop-fleet", "shop-observer", "shop-operator")


@pytest.fixture(name="rota")
def _rota(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rota:
    write_configuration(tmp_path, server, "shop")
    return rota_in(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _no_users(redis_client: "redis.Redis") -> Iterator[None]:
    yield
    redis_client.acl_deluser(*_NAMES)


def test_each_line_that_rota_acl_prints_creates_a_user(rota: Rota, redis_client: "redis.Redis") -> None:
    lines = rota("acl").out.splitlines()
    assert tuple(line.split()[2] for line in lines) == _NAMES
    for line in lines:
        assert execute(redis_client, *line.split())
        assert read_user(redis_client, line.split()[2])["enabled"]


def test_a_role_and_a_prefix_can_be_chosen(rota: Rota) -> None:
    (user,) = rota("acl", "observer", "--prefix", "prod.", "--json").json["users"]
    assert (user["role"], user["name"], user["rules"][0]) == ("observer", "prod.observer", "~{shop}:*")


def test_the_acl_user_for_sentinels_may_only_find_the_primary(rota: Rota) -> None:
    (line,) = rota("acl", "fleet", "--sentinel").out.splitlines()
    assert line.endswith("+client|setname +ping +sentinel|ckquorum +sentinel|get-master-addr-by-name +sentinel|masters")


def test_applied_users_work_and_keep_their_passwords(
    rota: Rota, server: Server, tmp_path: Path, redis_client: "redis.Redis"
) -> None:
    folder = tmp_path / "passwords"
    ran = rota("acl", "--apply", "--passwords", str(folder), "--yes")
    assert ran.code == ExitCode.CLEAN
    assert "the server has no ACL file" in ran.err
    files = {role: folder / role for role in AclRole}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    before = {role: file.read_text() for role, file in files.items()}
    assert len(set(before.values())) == len(files)

    for role, command in ((AclRole.FLEET, ("check", "--no-imports")), (AclRole.OBSERVER, ("queue", "ls"))):
        url = server.url.replace("//", f"//shop-{role}:{before[role].strip()}@")
        assert rota(*command, ROTA_REDIS_URL=url).code == ExitCode.CLEAN
    assert rota("acl", "--apply", "--passwords", str(folder), "--yes").code == ExitCode.CLEAN
    assert {role: file.read_text() for role, file in files.items()} == before
    printed = rota("acl", "fleet", "--passwords", str(folder)).out
    (shown,) = rota("acl", "fleet", "--passwords", str(folder), "--json").json["users"]
    assert shown["password_sha256"] in printed
    assert read_user(redis_client, "shop-fleet")["passwords"][0] in printed
    assert before[AclRole.FLEET].strip() not in printed


def test_rota_check_names_the_permissions_that_a_user_lacks(
    rota: Rota, server: Server, tmp_path: Path, redis_client: "redis.Redis"
) -> None:
    folder = tmp_path / "passwords"
    rota("acl", "fleet", "--apply", "--passwords", str(folder), "--yes")
    execute(redis_client, "ACL", "SETUSER", "shop-fleet", "-zadd", "-hvals")
    url = server.url.replace("//", f"//shop-fleet:{(folder / 'fleet').read_text().strip()}@")
    ran = rota("check", "--no-imports", ROTA_REDIS_URL=url)
    assert ran.code == ExitCode.CONFIG
    assert "HVALS, ZADD: ACL SETUSER shop-fleet +hvals +zadd" in ran.err


def test_users_are_saved_if_the_server_has_an_acl_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    users = folder / "users.acl"
    users.touch()
    own = Server(server.binary, folder, aclfile=str(users)).start()
    try:
        write_configuration(tmp_path, own, "shop")
        ran = rota_in(tmp_path, monkeypatch, capsys)(
            "acl", "--apply", "--passwords", str(tmp_path / "p"), "--yes", "--json"
        )
    finally:
        own.stop()
    assert ran.json == {"users": [*_NAMES], "passwords": str(tmp_path / "p"), "saved": True}
    assert users.read_text().count("user shop-") == len(_NAMES)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--apply",), ExitCode.USAGE, "--apply needs --passwords FOLDER"),
        (("--apply", "--sentinel", "--passwords", "p"), ExitCode.USAGE, "create the users of sentinels by hand"),
        (("--apply", "--passwords", "p"), ExitCode.USAGE, "confirm it with --yes"),
        (("--passwords", "none"), ExitCode.CONFIG, "cannot be read"),
        (
            ("--passwords", "two-words"),
            ExitCode.CONFIG,
            "does not contain a password: write a single word into the file",
        ),
        (("writer",), ExitCode.USAGE, "'writer' is not one of 'producer', 'fleet', 'observer', 'operator'"),
    ],
)
def test_rota_acl_explains_what_it_cannot_do(
    rota: Rota, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    folder = tmp_path / "two-words"
    folder.mkdir()
    for role in AclRole:
        (folder / role).write_text("two words\n")
    ran = rota("acl", *arguments)
    assert (ran.code, message in ran.err) == (code, True), ran.err


def test_only_an_administrator_can_create_users(rota: Rota, server: Server, tmp_path: Path) -> None:
    rota("acl", "operator", "--apply", "--passwords", str(tmp_path / "p"), "--yes")
    url = server.url.replace("//", f"//shop-operator:{(tmp_path / 'p' / 'operator').read_text().strip()}@")
    ran = rota("acl", "fleet", "--apply", "--passwords", str(tmp_path / "p"), "--yes", ROTA_REDIS_URL=url)
    assert ran.code == ExitCode.NO
    assert "run the command as an administrator" in ran.err
