"""Commands in difficult environments: the output cannot be written, an input file never ends, or no fleet could run on
the machine.
"""

import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from rota_supervisor.cli.app import COMMANDS
from rota_supervisor.config.errors import ConfigError
from rota_supervisor.config.loader import Sources, load_config
from support.fleet_process import DEADLINE_SECONDS, ROTA, environment
from support.fleet_process import rota as run_rota
from support.fleets import Fleets
from support.masters import ON_ONE_SERVER
from support.servers import Server

OUTPUT_LOST, CONFIG = 74, 78
LINE = "the output cannot be written: No space left on device"


def run_to(output: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with Path(output).open("w") as stream:
        return subprocess.run(
            [ROTA, *arguments],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )


@pytest.mark.parametrize("command", list(COMMANDS)[::4])
def test_help_to_a_full_disk_reports_lost_output(tmp_path: Path, command: str) -> None:
    done = run_to("/dev/full", tmp_path, command, "--help")
    assert (done.returncode, done.stderr) == (OUTPUT_LOST, f"rota: error: {LINE}\n")


@ON_ONE_SERVER
def test_output_to_a_full_disk_is_reported_as_lost(server: Server, tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text(f'redis_url = "{server.url}"\n')
    commands = ("queue ls", "dead ls", "audit", "config print", "man")
    for command in commands:
        for more in ([], ["--json"]):
            done = run_to("/dev/full", tmp_path, *command.split(), *more)
            said = [line for line in done.stderr.splitlines() if LINE in line]
            assert (done.returncode, len(said), "Traceback" in done.stderr) == (OUTPUT_LOST, 1, False), done.stderr


def test_the_exit_code_is_kept_if_standard_error_is_on_a_full_disk(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([ROTA, "no-such-command"], stderr=full, cwd=tmp_path, check=False)
    assert done.returncode == 2


@ON_ONE_SERVER
def test_characters_outside_the_encoding_are_escaped(fleets: Fleets) -> None:
    fleet = fleets.start(http={"listen": "127.0.0.1:0"})
    for more in ([], ["--json"]):
        done = fleet.rota("top", "--once", *more, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
    said = fleet.rota("group", "show", "gr\u00fc\u00df", PYTHONIOENCODING="ascii")
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/dev/zero", "the path is neither a regular file nor a pipe"),
        ("/dev/urandom", "the path is neither a regular file nor a pipe"),
        ("pipe", "the pipe was not closed by its writer within 0.05 s"),
        (".", "Is a directory"),
        ("endless", "the file has more than 1048576 bytes"),
    ],
)
@pytest.mark.parametrize("key", ["-c", "redis_url_file", "redis_tls_ca", "lua", "http.token_file"])
def test_endless_file_is_a_configuration_fault(
    tmp_path: Path, place: str, message: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.tasks.fleet_settings.PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    os.truncate(os.open(tmp_path / "endless", os.O_CREAT | os.O_RDWR), 1 << 40)
    text = {
        "-c": "",
        "redis_url_file": f'redis_url_file = "{place}"',
        "redis_tls_ca": f'redis_tls_ca = "{place}"',
        "http.token_file": f'http.token_file = "{place}"',
        "lua": 'conditions.c.lua = "it.lua"',
    }
    (tmp_path / "it.lua").symlink_to(place)
    (tmp_path / "rota.toml").write_text(text[key])
    with pytest.raises(ConfigError) as caught:
        load_config(Sources(tmp_path / (place if key == "-c" else "rota.toml"), required=True))
    assert any(message in str(fault) for fault in caught.value.faults), caught.value


def test_check_of_an_endless_file_terminates(tmp_path: Path) -> None:
    done = run_rota(tmp_path, "-c", "/dev/zero", "check", "--no-imports")
    expected = "rota: error: /dev/zero: cannot be read: the path is neither a regular file nor a pipe\n"
    assert (done.returncode, done.stderr) == (CONFIG, expected)


def test_too_small_stack_limit_is_reported() -> None:
    limit = 256 << 10
    done = subprocess.run(
        [ROTA, "--version"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (limit, limit)),
    )
    expected = "rota: error: the stack is limited to 256 kB: allow at least 1024 kB (ulimit -s)\n"
    assert (done.returncode, done.stderr) == (CONFIG, expected)


def test_a_machine_without_proc_is_reported(tmp_path: Path) -> None:
    hidden = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /proc && exec "$@"',
        "sh",
    ]
    if shutil.which("unshare") is None or subprocess.run([*hidden, "true"], check=False).returncode:
        pytest.skip("/proc cannot be hidden here: that takes unshare, and a namespace of its own")
    done = subprocess.run([*hidden, ROTA, "run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "/proc is not mounted: run mount" in done.stderr) == (CONFIG, True), done.stderr
