"""The control socket: one place a master, one JSON line an answer."""

import asyncio
import json
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.model import Config, Control
from rota_supervisor.control.places import ControlPlace, claim_place, pid_file, socket_places
from rota_supervisor.control.serving import serve_control
from rota_supervisor.exits import ExitCode, Failure


class FakeMaster:
    """A master that only remembers what it was asked."""

    def __init__(self) -> None:
        self.stops: list[bool] = []
        self.reload_result: dict[str, object] = {"result": "success", "changes": ["counts"]}

    def status(self) -> dict[str, object]:
        return {"pid": os.getpid()}

    def request_reload(self) -> Awaitable[dict[str, object]]:
        async def reload() -> dict[str, object]:
            return self.reload_result

        return reload()

    def request_stop(self, *, now: bool) -> None:
        self.stops.append(now)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ControlPlace]:
    claimed = claim_place(tmp_path / "run" / "c.sock")
    yield claimed
    claimed.close()


@pytest.fixture
def master(place: ControlPlace) -> Iterator[FakeMaster]:
    """A fake master that serves the place in a thread."""
    fake = FakeMaster()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    started = threading.Event()

    async def serve() -> None:
        async with serve_control(place, fake):
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(10)
    yield fake
    loop.call_soon_threadsafe(stopping.set)
    thread.join()
    loop.close()


def config_of(place: ControlPlace) -> Config:
    return Config(control=Control(socket=str(place.path)))


def test_the_client_asks_and_is_answered(place: ControlPlace, master: FakeMaster) -> None:
    with master_of(config_of(place)) as client:
        assert client.ask("status")["status"] == {"pid": os.getpid()}
        assert client.ask("reload")["reload"] == master.reload_result
        client.ask("stop", now=True)
        client.ask("stop", now=False)
        assert client.master_pid == os.getpid()

    assert master.stops == [True, False]


@pytest.mark.usefixtures("master")
def test_an_unknown_verb_is_refused_in_words(place: ControlPlace) -> None:
    with master_of(config_of(place)) as client, pytest.raises(Failure) as caught:
        client.ask("dance")

    assert caught.value.messages == ("the master refused: this master does not know the verb 'dance'",)


@pytest.mark.usefixtures("master")
@pytest.mark.parametrize("line", [b"[]\n", b"nonsense\n", b"{}\n", b"\xff\n", b"[" * 50_000 + b"\n", b"1\n"])
def test_garbage_is_answered_and_the_conversation_goes_on(place: ControlPlace, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(place.path))
        reader = raw.makefile("rb")
        raw.sendall(line)
        assert json.loads(reader.readline())["ok"] is False
        raw.sendall(b'{"verb":"status"}\n')
        assert json.loads(reader.readline())["ok"] is True
        reader.close()


@pytest.mark.usefixtures("master")
def test_an_endless_line_is_hung_up_on(place: ControlPlace) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20)
        raw.connect(str(place.path))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            raw.sendall(b"x" * 50_000_000)


def test_only_its_user_may_ask(place: ControlPlace) -> None:
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.path.parent.stat().st_mode) == 0o700


def test_the_place_of_a_live_master_is_taken(place: ControlPlace) -> None:
    with pytest.raises(Failure, match=f"another master, pid {os.getpid()}, has the control socket"):
        claim_place(place.path)


def test_what_a_killed_master_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    claimed = claim_place(path)

    claimed.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("mine")

    with pytest.raises(Failure, match="that is no socket"):
        claim_place(path)

    assert path.read_text() == "mine"


def test_a_folder_of_somebody_else_in_tmp_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)

    with pytest.raises(Failure, match="not a folder of ours alone"):
        claim_place(folder / "rota.sock")


def test_whoever_listens_in_a_folder_of_others_is_not_asked(tmp_path: Path) -> None:
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.mkdir(mode=0o700)
    place = claim_place(folder / "rota.sock")
    folder.chmod(0o755)

    with (
        pytest.raises(Failure, match="no master answers"),
        master_of(Config(control=Control(socket=str(place.path)))),
    ):
        pass

    place.close()


def test_a_link_to_a_folder_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder = tmp_path / f"rota-{os.getuid()}"
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Failure, match="not a folder of ours alone") as caught:
        claim_place(folder / "rota.sock")

    assert caught.value.code is ExitCode.TAKEN


def test_no_master_is_69_with_the_places_that_were_tried(tmp_path: Path) -> None:
    config = Config(control=Control(socket=str(tmp_path / "none.sock")))

    with pytest.raises(Failure) as caught, master_of(config):
        pass

    assert caught.value.code is ExitCode.UNREACHABLE
    assert str(tmp_path / "none.sock") in caught.value.messages[0]


def test_the_default_places_are_those_of_the_service_the_session_and_tmp() -> None:
    config = Config(namespace="shop")

    assert socket_places(config, {}, 7) == [Path("/tmp/rota-7/shop.sock")]
    assert socket_places(config, {"RUNTIME_DIRECTORY": "/run/a:/run/b", "XDG_RUNTIME_DIR": "/run/user/7"}, 7) == [
        Path("/run/a/shop.sock"),
        Path("/run/user/7/rota/shop.sock"),
        Path("/tmp/rota-7/shop.sock"),
    ]


def test_a_pid_file_is_held_while_its_master_lives_and_then_removed(tmp_path: Path) -> None:
    path = tmp_path / "rota.pid"

    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(Failure, match=r"another master, pid \d+, has the pid file"), pid_file(str(path)):
            pass

    assert not path.exists()


def test_a_stale_pid_file_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "rota.pid"
    path.write_text("99999999 and more\n")

    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
