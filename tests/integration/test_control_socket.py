"""The control socket. Each master has its own socket, and each reply is one line of JSON."""

import contextlib
import json
import os
import shutil
import socket
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.model import Config, Control
from rota_supervisor.control import socket_server
from rota_supervisor.control.port import SERVICES, ScaleOrder, socket_paths
from rota_supervisor.control.socket_server import (
    ControlSocket,
    claim_control_socket,
    hold_control_files,
    hold_pid_file,
)
from rota_supervisor.exits import ExitCode, Failure
from support.fake_master import FakeMaster, serving
from support.waiting import until


def refusal(control_socket: ControlSocket, verb: str, **fields: Any) -> str:
    """Send this request, which the master must refuse. Returns the reason."""
    with master_of(config_of(control_socket)) as client, pytest.raises(Failure) as caught:
        client.request(verb, **fields)
    assert caught.value.code is ExitCode.NO
    (message,) = caught.value.messages
    return message.removeprefix("the master refused: ")


def config_of(control_socket: ControlSocket) -> Config:
    return Config(control=Control(socket=str(control_socket.path)))


def test_a_request_of_every_kind_reaches_the_master(control_socket: ControlSocket, master: FakeMaster) -> None:
    with master_of(config_of(control_socket)) as client:
        assert client.request("status")["status"] == {"pid": os.getpid()}
        assert client.request("reload")["reload"] == {"asked": "reload"}
        client.request("reload", dry_run=True)
        client.request("restart")
        client.request("quiet")
        client.request("resume")
        client.request("stop", now=True)
        client.request("stop")
        assert client.master_pid == os.getpid()

    assert master.asked == ["reload", "preview", "restart", "quiet", "resume", "stop now", "stop"]


def test_scale_takes_a_number_or_a_difference(control_socket: ControlSocket, master: FakeMaster) -> None:
    with master_of(config_of(control_socket)) as client:
        client.request("scale", pool="mail", workers=8)
        client.request("scale", more=-2)
        client.request("scale", pool=None, workers=0)

    assert master.asked == [ScaleOrder("mail", 8), ScaleOrder(None, -2, is_relative=True), ScaleOrder(None, 0)]


@pytest.mark.usefixtures("master")
def test_an_unknown_request_is_refused_with_suggestions(control_socket: ControlSocket) -> None:
    knows = "the verbs status, scale, reload, restart, quiet, resume, stop, address, scaling"
    assert refusal(control_socket, "dance") == f'this master does not know the verb "dance": it knows {knows}'
    assert refusal(control_socket, "stopp") == 'this master does not know the verb "stopp", did you mean "stop"?'


@pytest.mark.parametrize(
    ("verb", "fields", "error"),
    [
        ("scale", {}, "scale takes exactly one of workers (the new number), more (the number to add) and auto"),
        ("scale", {"workers": 1, "more": 1}, "scale takes exactly one of workers (the new number)"),
        ("scale", {"workers": "8"}, 'workers must be a whole number, got "8"'),
        ("scale", {"workers": True}, "workers must be a whole number, got true"),
        ("scale", {"more": 1.5}, "more must be a whole number, got 1.5"),
        ("scale", {"pool": 7, "workers": 8}, "pool must be a name, got 7"),
        ("reload", {"dryrun": True}, 'reload has no field "dryrun", did you mean "dry_run"?'),
        ("reload", {"dry_run": "yes"}, 'dry_run must be true or false, got "yes"'),
        ("stop", {"now": 1}, "now must be true or false, got 1"),
        ("quiet", {"pool": "mail"}, 'quiet has no field "pool": it takes no fields'),
    ],
)
def test_a_request_with_invalid_fields_is_refused_with_a_message(
    control_socket: ControlSocket, master: FakeMaster, verb: str, fields: dict[str, object], error: str
) -> None:
    assert refusal(control_socket, verb, **fields).startswith(error)
    assert master.asked == []


@pytest.mark.usefixtures("master")
@pytest.mark.parametrize("line", [b"[]\n", b"nonsense\n", b"{}\n", b"\xff\n", b"[" * 50_000 + b"\n", b"1\n"])
def test_garbage_on_the_control_socket_is_refused_without_disconnecting(
    control_socket: ControlSocket, line: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(control_socket.path))
        reader = raw.makefile("rb")
        raw.sendall(line)
        assert json.loads(reader.readline())["ok"] is False
        raw.sendall(b'{"verb":"status"}\n')
        assert json.loads(reader.readline())["ok"] is True
        reader.close()


@pytest.mark.usefixtures("master")
def test_an_endless_line_closes_the_connection_to_the_control_socket(control_socket: ControlSocket) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20)
        raw.connect(str(control_socket.path))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            raw.sendall(b"x" * 50_000_000)


def test_the_control_socket_passes_on_why_the_master_refused(control_socket: ControlSocket, master: FakeMaster) -> None:
    master.refusal = "the fleet is draining"
    for verb in ("reload", "restart", "quiet"):
        assert refusal(control_socket, verb) == "the fleet is draining"


def test_only_the_owner_can_open_the_control_socket(control_socket: ControlSocket) -> None:
    assert stat.S_IMODE(control_socket.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(control_socket.path.parent.stat().st_mode) == 0o700


def test_the_socket_of_a_live_master_cannot_be_claimed(control_socket: ControlSocket) -> None:
    with pytest.raises(Failure, match=f"another master, pid {os.getpid()}, has the control socket"):
        claim_control_socket(control_socket.path)


def test_the_socket_of_a_killed_master_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    claimed = claim_control_socket(path)

    claimed.close()
    assert not path.exists()


def test_a_file_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("mine")

    with pytest.raises(Failure, match="exists and is not a socket"):
        claim_control_socket(path)

    assert path.read_text() == "mine"


def test_a_control_socket_is_not_created_in_a_folder_others_can_write(tmp_path: Path) -> None:
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)

    with pytest.raises(Failure, match="does not belong to this user alone"):
        claim_control_socket(folder / "rota.sock")


def test_a_control_socket_in_a_folder_of_open_permissions_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.mkdir(mode=0o700)
    control_socket = claim_control_socket(folder / "rota.sock")
    folder.chmod(0o755)

    with (
        pytest.raises(Failure, match="no master is listening"),
        master_of(Config(control=Control(socket=str(control_socket.path)))),
    ):
        pass

    control_socket.close()


def test_a_master_of_another_user_is_not_reported_as_missing(tmp_path: Path) -> None:
    control_socket = claim_control_socket(tmp_path / "c.sock")
    control_socket.path.chmod(0)
    others = Config(control=Control(socket=str(control_socket.path)))
    is_root = os.geteuid() == 0
    if is_root:
        for folder in (tmp_path, *tmp_path.parents[:-2]):
            folder.chmod(folder.stat().st_mode | 0o011)
        os.seteuid(65534)
    try:
        with (
            pytest.raises(
                Failure, match="belongs to another user: run this command as the user of the master"
            ) as caught,
            master_of(others),
        ):
            pass
    finally:
        if is_root:
            os.seteuid(0)
        control_socket.close()
    assert caught.value.code == ExitCode.UNREACHABLE


@pytest.fixture
def service_folder() -> Iterator[Path]:
    """Yield a folder with the permissions that systemd gives to the `RuntimeDirectory=` of a unit. Skip the test if it
    does not run as root.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can create a folder in /run")
    folder = SERVICES / f"rota-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o750)
    yield folder
    shutil.rmtree(folder)


def test_members_of_the_services_group_can_use_its_control_socket(
    service_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_folder
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(folder))
    config = Config(namespace=folder.name)
    user, group, operator, stranger = 64001, 64002, 64003, 64004
    os.chown(folder, user, group)
    with as_user(user, group), hold_control_files(config) as control_socket:
        monkeypatch.delenv("RUNTIME_DIRECTORY")
        assert stat.S_IMODE(control_socket.path.stat().st_mode) == 0o660
        with as_user(operator, group), master_of(config) as found:
            assert found.master_pid == os.getpid()
        with as_user(0, 0), master_of(config) as found:
            assert found.master_pid == os.getpid()
        with (
            as_user(stranger, stranger),
            pytest.raises(
                Failure, match=f"start a master .* may not search .*{folder}: .* member of the group of that unit"
            ),
            master_of(config),
        ):
            pass


@contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """Change the effective user and group of this process for the duration of the block."""
    before = (os.geteuid(), os.getegid())
    try:
        os.seteuid(0)
        os.setegid(group)
        os.seteuid(user)
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[1])
        os.seteuid(before[0])


def test_a_symbolic_link_is_refused_as_the_folder_of_the_control_socket(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Failure, match="does not belong to this user alone") as caught:
        claim_control_socket(folder / "rota.sock")

    assert caught.value.code is ExitCode.TAKEN


def test_the_error_about_a_missing_master_lists_the_paths_tried(tmp_path: Path) -> None:
    config = Config(control=Control(socket=str(tmp_path / "none.sock")))

    with pytest.raises(Failure) as caught, master_of(config):
        pass

    assert caught.value.code is ExitCode.UNREACHABLE
    assert str(tmp_path / "none.sock") in caught.value.messages[0]


def test_the_default_socket_is_in_the_service_or_session_folder_or_in_tmp() -> None:
    config = Config(namespace="shop")

    assert socket_paths(config.control.socket, config.namespace, {}, 7) == [Path("/tmp/rota-7/shop.sock")]
    assert socket_paths(
        config.control.socket,
        config.namespace,
        {"RUNTIME_DIRECTORY": "/run/a:/run/b", "XDG_RUNTIME_DIR": "/run/user/7"},
        7,
    ) == [
        Path("/run/a/shop.sock"),
        Path("/run/user/7/rota/shop.sock"),
        Path("/tmp/rota-7/shop.sock"),
    ]


def test_a_pid_file_is_locked_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rota.pid"

    with hold_pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(Failure, match=r"another master, pid \d+, has the pid file"), hold_pid_file(str(path)):
            pass

    assert not path.exists()


def test_a_stale_pid_file_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "rota.pid"
    path.write_text("4194305\n")

    with hold_pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_master_does_not_use_a_pid_file_that_was_just_removed(tmp_path: Path) -> None:
    """If a master locked a file that has already been removed, another master could create and lock a new file."""
    path = tmp_path / "rota.pid"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    path.unlink()

    assert socket_server._sign(fd, path) is False

    os.close(fd)


def test_a_pid_file_of_another_process_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "rota.pid"

    with hold_pid_file(str(path)):
        path.unlink()
        path.write_text("7\n")

    assert path.read_text() == "7\n"


@pytest.mark.parametrize("content", ["workers = 8\n", "7 of 9\n"])
def test_a_file_that_is_not_a_pid_file_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rota.toml"
    path.write_text(content)

    with pytest.raises(Failure, match="is not a pid file") as caught, hold_pid_file(str(path)):
        pass

    assert caught.value.code is ExitCode.TAKEN
    assert path.read_text() == content


def test_the_folder_of_the_control_socket_is_private_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        claimed = claim_control_socket(tmp_path / "run" / "c.sock")
    finally:
        os.umask(before)
    assert stat.S_IMODE(claimed.path.parent.stat().st_mode) == 0o700
    claimed.close()


def test_a_master_can_exit_while_control_clients_are_connected(control_socket: ControlSocket) -> None:
    with serving(control_socket) as fake, master_of(config_of(control_socket)) as client:
        client.request("stop")
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(str(control_socket.path))
        client.request("status")
    silent.close()
    assert fake.asked == ["stop"]
    assert fake.failures == []


def test_control_clients_that_read_no_replies_do_not_delay_others(
    control_socket: ControlSocket, master: FakeMaster
) -> None:
    """Each of these clients sends many requests at once. The master takes one request of each client in turn, so
    another client gets its reply after one round.
    """
    clients, requests = 100, 300
    master.answers["status"] = {"long": "x" * 2000}
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(str(control_socket.path))
            silent.sendall(b'{"verb": "status"}\n' * requests)
        with master_of(config_of(control_socket)) as client:
            until(lambda: master.statuses > clients, "all of them get replies")
            before = master.statuses
            client.request("restart")
            answered = master.statuses - before
    assert answered < 20 * clients, "each client got some replies, but not all of them"
