"""Fleets whose Redis password comes from a provider in the application or from a file. When the password changes, no
process has to restart.
"""

import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.server.logins import LoginUnknown
from rota_supervisor.code_probe import fetch_login
from support.fleet_process import ROTA, environment, rota, toml
from support.fleets import RunningFleet
from support.growing_files import logged
from support.servers import Server, free_port, server_binaries
from support.vault import USER, Vault
from support.waiting import until

_OWN = """
import rota


@rota.task
def follow(rest: int) -> None:
    if rest:
        follow.enqueue(rest - 1)


@rota.task(queue="many")
async def follow_together(rest: int) -> None:
    if rest:
        await follow_together.aenqueue(rest - 1)
"""


@pytest.fixture(name="vault", params=server_binaries())
def _vault(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    server = Server(server_binaries()[request.param], tmp_path_factory.mktemp("server")).start()
    vault = Vault(server)
    vault.serve_in(tmp_path)
    (tmp_path / "own.py").write_text(_OWN)
    yield vault
    vault.admin.close()
    server.stop()


SETTINGS: dict[str, Any] = {
    "imports": ["tasks", "own"],
    "tiers": [["default", "many"]],
    "pools": {"plain": {"workers": 2}, "many": {"workers": 1, "concurrency": 4, "queues": ["many"]}},
    "pollers": 2,
}


@pytest.fixture(name="fleet")
def _fleet(vault: Vault, namespace: str, tmp_path: Path) -> Iterator[RunningFleet]:
    """Yield a fleet that is not started yet. The client with which the test inspects this fleet needs no password."""
    made = RunningFleet(vault.server.url, namespace, tmp_path, redis_credentials="auth:login", **SETTINGS)
    yield made
    made.close()


@pytest.fixture(name="filed")
def _filed(vault: Vault, namespace: str, tmp_path: Path) -> Iterator[RunningFleet]:
    """Yield a running fleet whose URL, with the password, is in a file."""
    made = RunningFleet(vault.server.url, namespace, tmp_path, redis_url=vault.server.url, **SETTINGS)
    del made.settings["redis_url"]
    write_url(made, vault.password)
    made.edit(redis_url_file="url")
    yield made.start()
    made.close()


def write_url(fleet: RunningFleet, password: str) -> None:
    """Replace the file with the URL."""
    (fleet.folder / "next").write_text(fleet.url.replace("://", f"://{USER}:{password}@") + "\n")
    (fleet.folder / "next").replace(fleet.folder / "url")


def events(fleet: RunningFleet, name: str) -> list[dict[str, Any]]:
    """Return the log lines with this event name."""
    return [line for line in logged(fleet.folder / "fleet.log") if line["event"] == name]


def run_chain(fleet: RunningFleet) -> None:
    """Run a sequence of tasks in a pool without `concurrency`, and another sequence in a pool with it. Each task
    enqueues the next one.
    """
    for name, queue in (("follow", "default"), ("follow_together", "many")):
        fleet.client.enqueue(name, args=[2], queue=queue, delay=0.05)
    until(lambda: fleet.rota_json("audit")["live"] == 0, "the end of every task")


def test_a_changed_password_is_fetched_and_no_process_restarts(vault: Vault, fleet: RunningFleet) -> None:
    fleet.start()
    assert vault.logins_in_folder() == 1  # all processes share one login
    run_chain(fleet)
    before, pids = vault.names(), {process.pid for process in fleet.processes()}
    assert len(before) == 10
    vault.change("quince-2")
    vault.publish()
    until(lambda: vault.names() == before, "connections with the new password", 60)
    run_chain(fleet)
    assert {process.pid for process in fleet.processes()} == pids
    until(lambda: "rota_queue_ready_tasks" in fleet.get("/metrics")[1], "the exporter has read the queues")
    [renewed] = events(fleet, "login.renewed")
    assert renewed["user"] == USER
    for verb in (["check"], ["queue", "ls"], ["audit"], ["task", "enqueue", "follow", "0"]):
        done = fleet.rota(*verb)
        assert done.returncode == 0, (verb, done.stderr)
    shown = [fleet.log_text(), *(fleet.rota(*verb).stdout for verb in (["config", "print"], ["status"]))]
    assert not any("quince" in text for text in shown)


def test_connections_are_replaced_before_their_password_expires(vault: Vault, fleet: RunningFleet) -> None:
    vault.lifetime = 8
    vault.publish()
    fleet.start()
    before = vault.connections()
    until(lambda: len(events(fleet, "login.renewed")) >= 2, "the third password")
    run_chain(fleet)
    until(lambda: not vault.connections() & before, "another connection for each one", 60)
    assert events(fleet, "redis.lost") == []


def test_a_fleet_calls_a_failing_password_provider_again(vault: Vault, fleet: RunningFleet) -> None:
    fleet.start()
    vault.change("quince-2")
    vault.publish("the vault is sealed")
    until(lambda: len(events(fleet, "login.failed")) >= 2, "the provider was called twice")
    assert "ConnectionError: the vault is sealed" in events(fleet, "login.failed")[0]["error"]
    vault.publish()
    run_chain(fleet)


def test_a_reload_accepts_only_a_provider_that_returns_a_login(vault: Vault, fleet: RunningFleet) -> None:
    fleet.start()
    fleet.edit(redis_credentials="auth:broken")
    refused = fleet.rota("reload")
    assert refused.returncode == 78, refused.stderr
    assert "the provider returned str, but must return (user, password)" in refused.stderr
    vault.lifetime = 3600  # the other provider uses this value, so its login differs
    vault.publish()
    fleet.edit(redis_credentials="auth:other")
    assert fleet.rota("reload").returncode == 0
    until(lambda: events(fleet, "login.renewed"), "a login of the other provider")
    run_chain(fleet)
    fleet.edit(redis_credentials="")
    assert "cannot be changed by a reload" in fleet.rota("reload").stderr


def test_a_reload_changes_the_password_in_the_url_and_no_process_restarts(vault: Vault, filed: RunningFleet) -> None:
    before, pids = vault.names(), {process.pid for process in filed.processes()}
    write_url(filed, "quince-wrong")
    refused = filed.rota("reload")
    assert refused.returncode == 78
    assert "check the user and the password in redis_url" in refused.stderr
    vault.add("quince-2")
    write_url(filed, "quince-2")
    assert filed.rota("reload").returncode == 0
    until(lambda: events(filed, "login.renewed"), "the new password is in use")
    vault.change("quince-2")
    until(lambda: vault.names() == before, "connections with the new password", 60)
    run_chain(filed)
    assert {process.pid for process in filed.processes()} == pids
    (filed.folder / "url").write_text(filed.url)
    assert "cannot be changed by a reload" in filed.rota("reload").stderr
    assert "quince" not in filed.log_text() + refused.stderr


def test_a_changed_file_with_the_url_is_read_again_when_the_password_is_refused(
    vault: Vault, filed: RunningFleet
) -> None:
    before, pids = vault.names(), {process.pid for process in filed.processes()}
    vault.change("quince-2")
    until(lambda: events(filed, "redis.lost"), "the loss of the connection")
    write_url(filed, "quince-2")
    until(lambda: vault.names() == before, "connections with the new password", 60)
    run_chain(filed)
    assert {process.pid for process in filed.processes()} == pids
    assert "quince" not in filed.log_text()


def test_an_exporter_that_runs_alone_logs_in_with_the_url(filed: RunningFleet) -> None:
    listen = f"127.0.0.1:{free_port()}"
    variables = environment(filed.folder, ROTA_HTTP__LISTEN=listen)
    with subprocess.Popen([ROTA, "exporter"], cwd=filed.folder, env=variables) as exporter:
        try:
            until(lambda: "rota_redis_up 1" in metrics_at(listen), "an exporter that is connected")
        finally:
            exporter.terminate()


def metrics_at(listen: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=5) as response:
            found: str = response.read().decode()
            return found
    except OSError:
        return ""


def test_a_hanging_provider_blocks_neither_status_nor_shutdown(
    vault: Vault, fleet: RunningFleet, tmp_path: Path
) -> None:
    with pytest.raises(LoginUnknown, match=r"'auth:hanging' cannot be queried: it took longer than 0\.5 s"):
        fetch_login("auth:hanging", str(tmp_path), 0.5)
    fleet.start()
    (tmp_path / "auth.py").write_text((tmp_path / "auth.py").read_text() + "\nlogin = hanging\n")
    vault.admin.execute_command("CLIENT", "KILL", "USER", USER)  # type: ignore[no-untyped-call]  # of redis-py
    vault.change("quince-2")
    until(lambda: events(fleet, "redis.lost"), "the loss of the connection")
    assert fleet.rota("status").returncode == 0
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0


REFUSED = {
    "no module": ("nothing:login", "", 78, "module 'nothing' cannot be imported: ModuleNotFoundError"),
    "no such name": ("auth:nothing", "", 78, "module 'auth' has no 'nothing'"),
    "no login": ("auth:broken", "", 78, "the provider returned str, but must return (user, password)"),
    "a failure": ("auth:login", "sealed", 69, "the provider failed: ConnectionError: sealed"),
    "a wrong form": ("auth.login", "", 78, 'redis_credentials: expected "module:name", such as "shop.auth:login"'),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_fleet_without_a_login_is_refused_with_instructions(
    vault: Vault, fleet: RunningFleet, refused: tuple[str, str, int, str]
) -> None:
    provider, failure, code, message = refused
    vault.publish(failure)
    fleet.edit(redis_credentials=provider)
    checked = fleet.rota("check", "--no-imports")
    assert (checked.returncode, message in checked.stderr) == (code, True), checked.stderr
    assert fleet.launch().exit_code() == code
    assert message in fleet.log_text()


def test_a_login_that_the_server_refuses_is_reported_with_its_setting(vault: Vault, fleet: RunningFleet) -> None:
    vault.change("quince-2", known=False)
    checked = fleet.rota("check", "--no-imports")
    assert checked.returncode == 69
    assert "WRONGPASS" in checked.stderr
    assert "check the user and the password in redis_credentials" in checked.stderr
    assert fleet.launch().exit_code() == 69


def test_a_redis_url_with_a_password_is_refused_if_there_is_a_provider(namespace: str, tmp_path: Path) -> None:
    url = "redis://shop:hunter2@127.0.0.1:1/0"
    (tmp_path / "rota.toml").write_text(
        toml({"redis_url": url, "redis_credentials": "auth:login", "namespace": namespace})
    )
    checked = rota(tmp_path, "check", "--no-imports")
    assert checked.returncode == 78
    assert "redis_credentials: redis_url contains a user or a password: remove them from the URL" in checked.stderr
    assert "hunter2" not in checked.stderr
