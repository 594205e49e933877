"""The systemd unit and its template, under a real systemd. The tests start, reload, kill and stop the units as an
operator does.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.real_systemd import USER_ID, RealSystemd, real_systemd
from support.servers import server_binaries
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = 64101
STRANGER = 64102
TASKS = """
import time

import rota


@rota.task
def hold(seconds):
    time.sleep(seconds)
"""
SERVER = """
[Service]
ExecStart={binary} --port 6379 --save "" --appendonly no
"""


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSystemd]:
    top = tmp_path_factory.mktemp("systemd")
    units, srv, etc = (top / "files" / name for name in ("units", "srv", "etc"))
    shutil.copytree(ROOT / "deploy/systemd", units)
    for name in ("rota.service", "rota@.service"):
        (units / f"{name}.d").mkdir()
        shutil.copy(units / "before-253.conf", units / f"{name}.d")
        # The unit runs Rota from this repository. If the repository is in /tmp, PrivateTmp would hide it.
        (units / f"{name}.d/repository.conf").write_text(f"[Service]\nBindReadOnlyPaths={ROOT}\n")
    (units / "redis-server.service").write_text(SERVER.format(binary=server_binaries()["valkey"]))
    srv.mkdir()
    (srv / "tasks.py").write_text(TASKS)
    etc.mkdir()
    for name, port in (("rota", 9477), ("shop", 9478)):
        (etc / f"{name}.toml").write_text(configuration(name, port))
    with real_systemd(top, ROOT) as running:
        running.run("ln", "-s", "/srv/rota", "/srv/shop").check_returncode()
        running.run("systemctl", "start", "redis-server").check_returncode()
        yield running


def configuration(namespace: str, port: int, workers: int = 2) -> str:
    return (
        f'namespace = "{namespace}"\nimports = ["tasks"]\nworkers = {workers}\n'
        f'redis_url = "redis://127.0.0.1:6379/0"\nhttp.listen = "127.0.0.1:{port}"\n'
    )


def rota(systemd: RealSystemd, *arguments: str, fleet: str = "rota", user: int = 0) -> str:
    """Run `rota` in the folder of a fleet, with the group of the unit unless `user` is STRANGER. Returns its standard
    output or, if it failed, its exit code and standard error.
    """
    group = 0 if user == STRANGER else USER_ID
    command = ["env", "-C", f"/srv/{fleet}", "/opt/rota/bin/rota", "-c", f"/etc/rota/{fleet}.toml", *arguments]
    done = systemd.run(*command, user=user, group=group)
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr}"


def busy(systemd: RealSystemd, fleet: str = "rota") -> int:
    return int(json.loads(rota(systemd, "status", "--json", fleet=fleet))["pools"][0]["busy"])


@pytest.fixture(params=["rota", "rota@shop"])
def unit(request: pytest.FixtureRequest, systemd: RealSystemd) -> Iterator[str]:
    """Yield the name of a unit that is running."""
    name: str = request.param
    started = systemd.run("systemctl", "start", name)
    assert started.returncode == 0, (started.stderr, systemd.journal(name))
    yield name
    systemd.run("systemctl", "stop", name)
    systemd.run("systemctl", "reset-failed", name)


def fleet_of(unit: str) -> str:
    return unit.rpartition("@")[2]


def test_a_started_systemd_unit_is_ready_and_its_group_can_control_it(systemd: RealSystemd, unit: str) -> None:
    assert systemd.shows(unit, "ActiveState") == {"ActiveState": "active"}
    until(lambda: systemd.shows(unit, "StatusText")["StatusText"].startswith("2 of 2 workers"), "two workers")
    for user in (0, USER_ID, OPERATOR):
        assert json.loads(rota(systemd, "status", "--json", fleet=fleet_of(unit), user=user))["state"] == "running"
    assert "may not search" in rota(systemd, "status", fleet=fleet_of(unit), user=STRANGER)


def test_reload_resizes_the_fleet(systemd: RealSystemd, unit: str) -> None:
    fleet = fleet_of(unit)
    port = 9477 if fleet == "rota" else 9478
    systemd.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", configuration(fleet, port, 3), f"/etc/rota/{fleet}.toml")
    assert systemd.run("systemctl", "reload", unit).returncode == 0
    until(lambda: systemd.shows(unit, "StatusText")["StatusText"].startswith("3 of 3 workers"), "three workers")
    systemd.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", configuration(fleet, port), f"/etc/rota/{fleet}.toml")


def test_stopping_the_systemd_unit_waits_for_the_running_task(systemd: RealSystemd, unit: str) -> None:
    fleet = fleet_of(unit)
    assert "exit code" not in rota(systemd, "task", "enqueue", "hold", "10", fleet=fleet)
    until(lambda: busy(systemd, fleet) == 1, "the task runs")
    assert systemd.run("systemctl", "stop", unit).returncode == 0
    assert systemd.shows(unit, "Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert json.loads(rota(systemd, "audit", "--json", fleet=fleet))["live"] == 0


def test_systemd_restarts_a_killed_master(systemd: RealSystemd, unit: str) -> None:
    before = systemd.shows(unit, "MainPID")["MainPID"]
    systemd.run("kill", "-KILL", before).check_returncode()
    until(lambda: systemd.shows(unit, "NRestarts", "ActiveState") == {"NRestarts": "1", "ActiveState": "active"}, "2nd")
    assert systemd.shows(unit, "MainPID")["MainPID"] not in (before, "0")


def test_systemd_does_not_restart_a_unit_with_a_faulty_configuration(systemd: RealSystemd) -> None:
    systemd.run("sh", "-c", "echo wrokers = 1 > /etc/rota/broken.toml; mkdir -p /srv/broken").check_returncode()
    assert systemd.run("systemctl", "start", "rota@broken").returncode == 1
    assert systemd.shows("rota@broken", "ActiveState", "ExecMainStatus", "NRestarts") == {
        "ActiveState": "failed",
        "ExecMainStatus": "78",
        "NRestarts": "0",
    }
    assert "wrokers" in systemd.journal("rota@broken")
