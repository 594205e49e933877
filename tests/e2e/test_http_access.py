"""`[http]` of a fleet as people run it: its token, its certificate, and what they do from the page."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from certificates import certificate
from fleet_process import DEADLINE_SECONDS
from fleet_process import rota as run_rota
from fleets import Fleets, RunningFleet
from waiting import until

TOKEN = "nobody-guesses-this-token"
LISTEN = "127.0.0.1:0"


def act(fleet: RunningFleet, **order: object) -> tuple[int, dict[str, Any]]:
    """What an action from the page comes to."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    url = f"http://{fleet.status()['listen']}/actions"
    request = urllib.request.Request(url, json.dumps(order).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_a_pool_is_scaled_and_a_task_revived_by_who_bears_the_token(fleets: Fleets, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    fleet = fleets.start(http={"listen": LISTEN, "token_file": "token", "actions": True}, workers=1)
    assert fleet.get("/metrics")[0] == 401
    assert act(fleet, verb="scale", pool="default", workers=2)[0] == 200
    until(lambda: len(fleet.workers()) == 2, "a second worker")
    status, refused = act(fleet, verb="scale", pool="other", workers=2)
    assert (status, "there is no pool" in refused["error"]) == (409, True), refused
    [line] = fleet.log("exporter.action")
    assert (line["verb"], line["pool"], line["workers"]) == ("scale", "default", 2)
    shown = fleet.rota("top", "--json")
    assert json.loads(shown.stdout)["actions"] is True, shown.stderr


def test_a_fleet_over_tls_is_asked_by_its_own_commands(fleets: Fleets, tmp_path: Path) -> None:
    made = certificate(tmp_path, "fleet")
    fleet = fleets.make(http={"listen": LISTEN, "tls_cert": made.cert.name, "tls_key": made.key.name})
    fleet.launch()
    until(lambda: fleet.rota("health", "--ready").returncode == 0, "a fleet that is ready")
    assert fleet.rota("top", "--once").returncode == 0
    with pytest.raises(OSError, match=r"reset|closed|Remote end"):
        fleet.get("/livez")  # in plain text


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ({"actions": True}, "http.actions: who may do more than look has to bear a token: set http.token_file"),
        ({"token_file": "nothing"}, "nothing cannot be read: No such file or directory"),
        ({"token_file": "short"}, "short holds no token"),
        ({"tls_cert": "fleet.pem"}, "http.tls_key: TLS takes both, tls_cert and tls_key"),
        ({"tls_cert": "fleet.pem", "tls_key": "other.key"}, "http.tls_cert and http.tls_key cannot be used together"),
    ],
)
def test_what_cannot_be_used_is_said_before_a_start(fleets: Fleets, tmp_path: Path, http: Any, message: str) -> None:
    (tmp_path / "short").write_text("1234\n")
    for name in ("fleet", "other"):
        certificate(tmp_path, name)
    fleets.make(http={"listen": LISTEN, **http})
    checked = run_rota(tmp_path, "check")
    assert (checked.returncode, message in checked.stderr) == (78, True), checked.stderr
