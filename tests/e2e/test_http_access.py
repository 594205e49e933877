"""The table `[http]` of the configuration in a real fleet: the token, the certificate, and the actions on the page."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota_supervisor.node_http import NodeResponse, NodeUnreachable, node_at
from support.certificates import certificate
from support.fleet_process import DEADLINE_SECONDS, ROTA, environment, toml
from support.fleet_process import rota as run_rota
from support.fleet_readings import Scrape
from support.fleets import Fleets, RunningFleet
from support.servers import free_port
from support.waiting import until

TOKEN = "nobody-guesses-this-token"
LISTEN = "127.0.0.1:0"


def act(fleet: RunningFleet, **order: object) -> tuple[int, dict[str, Any]]:
    """Request an action from the exporter, and return the status and the JSON content of the response."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    url = f"http://{fleet.status()['listen']}/actions"
    request = urllib.request.Request(url, json.dumps(order).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_only_a_holder_of_the_token_may_scale_a_pool(fleets: Fleets, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    fleet = fleets.start(http={"listen": LISTEN, "token_file": "token", "actions": True}, workers=1)
    assert fleet.get("/metrics")[0] == 401
    assert act(fleet, verb="scale", pool="default", workers=2)[0] == 200
    until(lambda: len(fleet.workers()) == 2, "a second worker")
    status, refused = act(fleet, verb="scale", pool="other", workers=2)
    assert (status, "there is no pool" in refused["error"]) == (409, True), refused
    for key in ("node", "role", "namespace", "event", "level", "pid"):
        status, refused = act(fleet, verb="scale", workers=3, **{key: "forged"})
        assert (status, f'not "{key}"' in refused["error"]) == (400, True), refused
    [line] = fleet.log("exporter.action")  # a single line, although the node has several processes
    assert (line["verb"], line["pool"], line["workers"]) == ("scale", "default", 2)
    assert (line["role"], line["namespace"]) == ("exporter", fleet.namespace)
    shown = fleet.rota("top", "--json")
    assert json.loads(shown.stdout)["actions"] is True, shown.stderr
    (tmp_path / "other").write_text("a-token-of-somebody-else")
    refused_top = fleet.rota("top", "--once", "--token-file", "other")
    assert (refused_top.returncode, "has another token: use --token-file" in refused_top.stderr) == (69, True)
    without_token = fleet.rota("top", "--once", "--url", f"http://{fleet.status()['listen']}")
    assert (without_token.returncode, "requires a token: use --token-file" in without_token.stderr) == (69, True), (
        without_token.stderr
    )


def test_a_fleet_that_listens_to_other_machines_without_a_token_warns(fleets: Fleets, tmp_path: Path) -> None:
    fleet = fleets.start(http={"listen": "0.0.0.0:0"})
    [line] = [line for line in fleet.log("config.warning") if "http.listen" in line["warning"]]
    assert "other machines may read only /metrics, /livez and /readyz" in line["warning"]
    checked = run_rota(tmp_path, "check")
    assert (checked.returncode, line["warning"] in checked.stderr) == (0, True), checked.stderr
    # The command is permitted to read everything, because it runs on the same machine.
    assert fleet.rota("top", "--once").returncode == 0


def test_commands_reach_the_fleet_of_their_own_machine_over_tls(fleets: Fleets, tmp_path: Path) -> None:
    made = certificate(tmp_path, "fleet")
    fleet = fleets.make(http={"listen": LISTEN, "tls_cert": made.cert.name, "tls_key": made.key.name})
    fleet.launch()
    until(lambda: fleet.rota("health", "--ready").returncode == 0, "a fleet that is ready")
    assert fleet.rota("top", "--once").returncode == 0
    with pytest.raises(OSError, match=r"reset|closed|Remote end"):
        fleet.get("/livez")  # a request without TLS fails
    by_name = fleet.rota("top", "--once", "--url", f"https://{fleet.status()['listen']}")
    assert (by_name.returncode, "set SSL_CERT_FILE to" in by_name.stderr) == (69, True), by_name.stderr


def test_a_separate_exporter_shows_the_metrics_of_a_fleet_elsewhere(fleets: Fleets, tmp_path: Path) -> None:
    fleet = fleets.start()
    fleet.client.pause("default")
    fleet.client.enqueue_many(rota.Call("note", ["x"], queue="default") for _ in range(3))
    alone = tmp_path / "alone"
    alone.mkdir()
    http = {"listen": f"127.0.0.1:{free_port()}"}
    (alone / "rota.toml").write_text(toml({"namespace": fleet.namespace, "redis_url": fleet.url, "http": http}))
    exporter = subprocess.Popen([ROTA, "exporter"], cwd=alone, env=environment(alone), stderr=subprocess.PIPE)
    try:
        get = node_at(http["listen"]).get
        until(lambda: http_status(get, "/readyz") == 200, "an exporter that reaches Redis")
        scrape = Scrape(get("/metrics").text)
        assert scrape.total("rota_queue_ready_tasks", queue="default") == 3
        assert scrape.total("rota_redis_up") == 1
        from_masters = ("rota_task_starts_total", "rota_task_lag_worst_seconds", "rota_starts_held")
        assert [name for name in from_masters if f"{name}{{" in scrape.text] == []
        # If the first heartbeat was sent before the workers started, it reports no workers.
        until(lambda: [node["workers"] for node in shown(get)["nodes"]] == [2], "a node with its workers")
        assert shown(get)["processes"] == []
    finally:
        exporter.terminate()
        _, errors = exporter.communicate(timeout=DEADLINE_SECONDS)
    assert exporter.returncode == 0, errors


def shown(get: Callable[[str], NodeResponse]) -> Any:
    return json.loads(get("/status.json").text)


def http_status(get: Callable[[str], NodeResponse], path: str) -> int:
    """Return the status of the response, or 0 if there is no response."""
    try:
        return get(path).status
    except NodeUnreachable:
        return 0


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ({"actions": True}, "http.actions: actions require a token: set http.token_file"),
        (
            {"read_token_file": "token"},
            (
                "http.read_token_file: set http.token_file too: a read-only token is used in addition to that of "
                "http.token_file"
            ),
        ),
        ({"allowed_hosts": ["rota.example.com:80"]}, "http.allowed_hosts[0]: expected a host name without a port"),
        ({"token_file": "nothing"}, "nothing cannot be read: No such file or directory"),
        ({"token_file": "short"}, "short contains no token"),
        ({"tls_cert": "fleet.pem"}, "http.tls_key: for TLS, set both tls_cert and tls_key"),
        ({"tls_cert": "fleet.pem", "tls_key": "other.key"}, "expected a certificate and its key in PEM format"),
    ],
)
def test_unusable_http_settings_are_reported_by_check(fleets: Fleets, tmp_path: Path, http: Any, message: str) -> None:
    (tmp_path / "short").write_text("1234\n")
    for name in ("fleet", "other"):
        certificate(tmp_path, name)
    fleets.make(http={"listen": LISTEN, **http})
    checked = run_rota(tmp_path, "check")
    assert (checked.returncode, message in checked.stderr) == (78, True), checked.stderr
