"""The command `rota run`: the configurations that it refuses, and the output of `status`, `reload` and `stop` for its
fleet.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.server.address import parse_address
from rota.server.connection import Connection
from rota.server.server_errors import ServerError
from rota_supervisor.config.model import Config
from support.fleet_process import FleetProcess
from support.masters import ON_ONE_SERVER
from support.servers import Server, free_port
from support.waiting import until

TASKS = """
import rota, time

@rota.task
def nap(seconds): time.sleep(seconds)
"""


class Place(FleetProcess):
    """A folder with the files of a fleet, and the environment variables of the fleet and of commands in this folder."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        super().__init__(folder)
        self.control_socket = f"rota/{namespace}.sock"  # the default path of the control socket
        self.environment = {"ROTA_REDIS_URL": redis_url, "ROTA_NAMESPACE": namespace}
        (folder / "tasks.py").write_text(TASKS)
        self.write('imports = ["tasks"]\nworkers = 1\n[http]\nlisten = "127.0.0.1:0"\n')

    def call(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run this command and wait until it has ended."""
        return self.rota(*arguments, **(self.environment | variables))

    @contextlib.contextmanager
    def fleet(self, *arguments: str) -> Iterator[None]:
        """Run a fleet during the block. Kill it afterwards if it is still running."""
        process = self.launch(*arguments).process
        assert process is not None
        with process:
            try:
                until(lambda: self.log("fleet.ready") or self.has_ended(), "the fleet is ready")
                assert not self.has_ended(), self.log_text()
                yield
            finally:
                process.kill()


@pytest.fixture
def place(tmp_path: Path, server: Server, namespace: str) -> Place:
    """Return the folder for a fleet that uses a real server."""
    return Place(tmp_path, server.url, namespace)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A fleet that cannot run: the text of its module `tasks`, its environment variables, and the exit code and error
    message with which `rota run` must end.
    """

    module: str
    variables: dict[str, str]
    code: int
    message: str


def check_refusal(place: Place, unfit: Unfit) -> None:
    (place.folder / "tasks.py").write_text(unfit.module)

    done = place.call("run", **unfit.variables)

    assert done.returncode == unfit.code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("rota: error: ")]
    assert any(unfit.message in line for line in errors), done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert not list(place.folder.glob("rota/*.sock"))


@pytest.mark.parametrize(
    "unfit",
    [
        Unfit(
            TASKS, {"ROTA_REDIS_URL": "redis://:hunter2@127.0.0.1:1"}, 69, "redis://:***@127.0.0.1:1 is not reachable"
        ),
        Unfit(
            TASKS,
            {"ROTA_WORKERS": "-2"},
            78,
            'workers: expected a whole number >= 0 or a range, as in "2..16", got -2 (environment ROTA_WORKERS)',
        ),
    ],
)
def test_run_explains_what_is_missing_without_server_or_configuration(tmp_path: Path, unfit: Unfit) -> None:
    check_refusal(Place(tmp_path, "redis://127.0.0.1:1", "unfit"), unfit)


@ON_ONE_SERVER
def test_running_fleet_serves_commands_and_blocks_a_second_master(place: Place) -> None:
    with place.fleet():
        shown = place.call("status").stdout
        assert re.search(r"^default +running +1 +\w+ +1 +0 ", shown, re.MULTILINE)
        assert re.search(r"^ +\d+ +worker +default ", shown, re.MULTILINE)
        assert place.call("health", "--live", "--json").stdout.startswith('{"healthy": true')
        assert place.call("health", "--ready", ROTA_HTTP__LISTEN="").stdout == "ok\n"
        assert place.call("health", "--live", ROTA_HTTP__LISTEN="nonsense").stdout == "ok\n"

        second = place.call("run")
        assert second.returncode == 73
        assert f"another master, pid {place.pid}, has the control socket" in second.stderr
        assert json.loads(place.call("status", "--json").stdout)["pid"] == place.pid

        port = place.target().rpartition(":")[2]
        third = place.call("run", ROTA_CONTROL__SOCKET="third.sock", ROTA_HTTP__LISTEN=f"127.0.0.1:{port}")
        assert third.returncode == 73
        assert "http.listen" in third.stderr


LOOKS = (
    ("queue", "ls"),
    ("queue", "explain"),
    ("dead", "ls"),
    ("dead", "purge", "--all", "--yes"),
    ("task", "ls"),
    ("cron", "ls"),
    ("group", "ls"),
    ("audit",),
)


@ON_ONE_SERVER
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("workers = ", "is not valid TOML"),
        ('namspace = "rota"\nworkers = 1', "namspace: unknown key"),
    ],
)
def test_commands_with_a_broken_file_use_the_running_master(place: Place, content: str, fault: str) -> None:
    file = place.folder / "rota.toml"
    url, namespace = place.environment["ROTA_REDIS_URL"], place.environment["ROTA_NAMESPACE"]
    file.write_text(f'namespace = "{namespace}"\nredis_url = "{url}"\n{file.read_text()}')
    place.environment = {}
    with place.fleet():
        task_id = place.call("task", "enqueue", "nap", "1", "--delay", "1h").stdout.strip()
        file.write_text(content)
        for words in LOOKS:
            done = place.call(*words)
            assert done.returncode == 0, (words, done.stderr)
            [warning] = [line for line in done.stderr.splitlines() if line.startswith("rota: warning: ")]
            assert fault in warning
            assert f"namespace, {namespace}, are those of the running master, pid {place.pid}" in warning
        if "namspace" not in content:  # the default tiers must not add a queue that no worker serves
            assert not re.search("^default .*unserved", place.call("queue", "ls").stdout, re.MULTILINE)
        assert place.call("health", "--ready").stdout == "ok\n"
        assert place.call("top", "--once").stdout.startswith(f"{namespace} on ")
        assert place.call("reload").returncode == 78
        refused = f"the last reload was refused [^:]+ ago: .*{fault}"
        assert re.search(f"^ok; {refused}", place.call("health", "--ready").stdout)
        assert re.search(refused, place.call("top", "--once").stdout)
        assert place.call("task", "cancel", task_id).returncode == 0
        elsewhere = place.call("queue", "ls", ROTA_NAMESPACE="another")
        assert (elsewhere.returncode, elsewhere.stdout) == (78, ""), "the master is not of the fleet that was named"
        other = place.folder / "other.toml"
        other.write_text("workers = ")
        for words in (("queue", "ls"), ("quiet",), ("stop",)):
            assert place.call(*words, "-c", str(other)).returncode == 78, "no master was started with that file"
        assert place.call("stop").returncode == 0
    assert place.call("queue", "ls").returncode == 78


@ON_ONE_SERVER
def test_reload_and_stop_report_their_results(place: Place) -> None:
    config = place.folder / "rota.toml"
    with place.fleet():
        config.write_text(config.read_text().replace("workers = 1", "workers = 2"))
        assert place.call("reload").stderr.splitlines() == [
            "rota: reloaded: counts",
            "rota: workers: 1 -> 2 (file rota.toml)",
        ]

        config.write_text(config.read_text().replace("workers = 2", 'workers = "two"'))
        refused = place.call("reload")
        assert refused.returncode == 78
        assert 'workers: expected a whole number >= 0 or a range, as in "2..16", got "two"' in refused.stderr
        assert "the fleet keeps its old configuration" in refused.stderr
        config.write_text("workers = ")
        assert "is not valid TOML" in place.call("reload").stderr
        assert place.status()["pools"][0]["desired"] == 2

        stopped = place.call("stop")
        assert (stopped.returncode, stopped.stderr) == (0, "rota: stopped\n")
        assert place.exit_code() == 0


def test_stop_now_does_not_wait_for_tasks(place: Place) -> None:
    with place.fleet():
        place.call("task", "enqueue", "nap", "600")
        until(lambda: any(pool["busy"] for pool in place.status().get("pools", ())))

        assert place.call("stop", "--now").returncode == 0
        assert place.exit_code() == 0

    [row] = json.loads(place.call("queue", "ls", "--json").stdout)
    assert (row["ready"], row["inflight"]) == (1, 0)


# The embedded server of a fleet


def pids_of_server(place: Place) -> list[int]:
    """Return the pids of the embedded servers of this place. The process title of such a server contains its port."""
    title = place.environment["ROTA_REDIS_URL"].removeprefix("redis://").partition("/")[0].encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if title in (command := (entry / "cmdline").read_bytes()) and b"valkey-server" in command:
                found.append(int(entry.name))
    return found


def is_reachable(url: str) -> bool:
    try:
        Connection(parse_address(url)).close()
    except ServerError:
        return False
    return True


def test_embedded_fleet_works_and_leaves_no_server(tmp_path: Path) -> None:
    place = Place(tmp_path, f"redis://127.0.0.1:{free_port()}/0", "embedded")
    url = place.environment["ROTA_REDIS_URL"]

    with place.fleet("--embedded"):
        [server] = pids_of_server(place)
        os.kill(server, signal.SIGKILL)
        until(lambda: is_reachable(url))
        task_id = place.call("task", "enqueue", "nap", "0").stdout.strip()
        until(lambda: json.loads(place.call("audit", "--json").stdout)["done"] == 1)
        assert task_id
        taken = place.call("run", "--embedded")
        assert taken.returncode == 73
        assert "listens at 127.0.0.1" in taken.stderr
        assert place.call("stop").returncode == 0

    assert pids_of_server(place) == []


def test_embedded_server_on_another_host_exits_with_78(tmp_path: Path) -> None:
    place = Place(tmp_path, "redis://redis.example:6379", "embedded")

    done = place.call("run", "--embedded")

    assert done.returncode == 78
    assert "--embedded listens on this machine only, and redis_url names redis.example" in done.stderr


def test_an_embedded_server_dies_with_a_killed_master(tmp_path: Path) -> None:
    place = Place(tmp_path, f"redis://127.0.0.1:{free_port()}/0", "embedded")

    with place.fleet("--embedded"):
        assert pids_of_server(place)
        place.signal(signal.SIGKILL)
        place.exit_code()

    until(lambda: not pids_of_server(place))


@contextlib.contextmanager
def default_port_taken() -> Iterator[None]:
    """During the block, occupy the default port. If another program already occupies the port, do nothing."""
    host, _, port = Config().http.listen.rpartition(":")
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(socket.create_server((host, int(port))))
        yield


def unset_listen(place: Place) -> None:
    """Remove the listen address from the configuration. The fleet then uses the default port or one of the ports after
    it.
    """
    place.write('imports = ["tasks"]\nworkers = 1\n')


def moved(place: Place) -> str:
    """Return the address at which a fleet listens when the default port is taken. Check that the log and the master
    report the same address.
    """
    [warning] = [line for line in place.log("config.warning") if line.get("path") == "http.listen"]
    [starting] = place.log("fleet.starting")
    target = place.target()
    assert target != Config().http.listen
    assert starting["listen"] == target
    assert f"{Config().http.listen} is already in use, so this fleet listens at {target}" in warning["warning"]
    return target


@ON_ONE_SERVER
def test_fleets_take_the_next_port_if_the_default_is_taken(tmp_path: Path, server: Server, namespace: str) -> None:
    places = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        places.append(Place(tmp_path / name, server.url, f"{namespace}-{name}"))
        unset_listen(places[-1])

    with default_port_taken(), places[0].fleet(), places[1].fleet():
        assert moved(places[0]) != moved(places[1])
        for place in places:
            own = place.environment["ROTA_NAMESPACE"]
            assert place.call("health", "--ready").stdout == "ok\n"
            assert json.loads(place.call("top", "--json").stdout)["fleet"] == own
            assert own in place.call("top", "--once").stdout
            assert json.loads(place.call("status", "--json").stdout)["listen"] == place.target()


@ON_ONE_SERVER
def test_reload_keeps_the_port_chosen_at_the_start(place: Place) -> None:
    unset_listen(place)
    with default_port_taken(), place.fleet():
        taken = moved(place)
        place.write('imports = ["tasks"]\nworkers = 2\n')
        assert place.call("reload").returncode == 0
        assert place.target() == taken
        place.write('imports = ["tasks"]\nworkers = 2\n[http]\nlisten = "127.0.0.1:0"\n')
        assert place.call("reload").returncode == 0
        assert place.target() != taken
        unset_listen(place)
        assert place.call("reload").returncode == 0
        assert place.target() == taken


@ON_ONE_SERVER
def test_run_with_burst_works_although_another_fleet_has_the_default_port(place: Place) -> None:
    unset_listen(place)
    with default_port_taken():
        done = place.call("run", "--burst")
    assert done.returncode == 0, done.stderr


@ON_ONE_SERVER
def test_run_exits_with_73_if_its_configured_port_is_in_use(place: Place) -> None:
    with default_port_taken():
        done = place.call("run", ROTA_HTTP__LISTEN=Config().http.listen)
    assert done.returncode == 73
    assert f"http.listen = '{Config().http.listen}'" in done.stderr
