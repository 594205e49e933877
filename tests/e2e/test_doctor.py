"""`rota doctor` on running fleets: its findings about the fleets' limits and nodes, and its support archive, which must
not contain the secrets that the tests have planted.
"""

import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

MARK: Final = "s3cr3t"  # a part of each secret, by which the tests recognize it in an archive
LEAKY_TASKS: Final = '''
import logging
import os

import rota


@rota.task(retries=0)
def leak(argument):
    """Print, log and raise everything that should not be in an archive."""
    dsn = os.environ["DATABASE_URL"]
    print(f"connecting to {dsn}", flush=True)
    logging.getLogger("shop").warning("token=%s url %s", os.environ["STRIPE_API_KEY"], os.environ["CACHE_URL"])
    print("Authorization: Bearer s3cr3t-in-a-header-0123456789", flush=True)
    print('{"password": "s3cr3t in json"}', flush=True)
    print("-----BEGIN PRIVATE KEY-----\\ns3cr3t+key\\n-----END PRIVATE KEY-----", flush=True)
    raise RuntimeError(f"cannot reach {dsn} with {argument}: api_key=s3cr3t-in-an-error")
'''


def examined(fleet: RunningFleet, *arguments: str, **more: str) -> dict[str, Any]:
    """Run `rota doctor --json` and return its document."""
    done = fleet.rota("doctor", "--json", *arguments, **more)
    assert "Traceback" not in done.stderr, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["code"] == done.returncode
    return document


def found_in(document: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["seen"] for each in document["findings"]}


def test_doctor_examines_the_limits_of_the_running_master(fleets: Fleets) -> None:
    fleet = fleets.make()
    fleet.prefix = ["sh", "-c", 'ulimit -n 90 && exec "$@"', "sh"]
    fleet.start()
    document = examined(fleet)
    process = document["facts"]["process"]
    assert (process["is_master"], process["pid"]) == (True, fleet.pid)
    assert process["open_files"] == 90
    assert found_in(document)["open-files-low"].startswith(f"90 open files are allowed for the master, pid {fleet.pid}")
    assert "fleet-not-seen" not in found_in(document)
    assert document["code"] == 0


def test_doctor_reports_a_quiet_fleet_as_not_ready(fleets: Fleets) -> None:
    fleet = fleets.start()
    fleet.request("quiet")
    document = examined(fleet)
    assert "quiet" in found_in(document)["fleet-not-ready"]
    assert document["code"] == 1


def test_doctor_reports_a_refused_reload_until_the_file_is_repaired(fleets: Fleets) -> None:
    fleet = fleets.start()
    fleet.edit(limits={"drain_secnds": 1})
    assert fleet.rota("reload").returncode == 78
    found = found_in(examined(fleet))
    assert 'did you mean "drain_seconds"?' in found["configuration-invalid"]
    assert "drain_secnds" in found["reload-refused"]
    assert "redis-unreachable" not in found  # the doctor examines the server that the running master uses


def test_doctor_finds_a_service_manager_with_a_short_stop_timeout(fleets: Fleets) -> None:
    fleet = fleets.start(limits={"drain_seconds": 60})
    document = examined(fleet, "--grace", "30s")
    assert found_in(document)["grace-too-short"] == "the manager waits 30 s for a stop, but limits.drain_seconds is 60"
    assert document["code"] == 1
    assert "grace-too-short" not in found_in(examined(fleet, "--grace", "75"))


def test_doctor_finds_a_second_application_in_the_namespace(fleets: Fleets) -> None:
    fleets.node("one").start()
    other = fleets.node("other", imports=["shop"])
    (other.folder / "shop.py").write_text("import rota\n\n\n@rota.task\ndef sell(): ...\n")
    other.start()
    found = found_in(examined(other))
    assert found["namespace-shared"].endswith("have no task in common, and both serve default")
    assert "nodes-one-host" in found  # both nodes run on this machine


def test_doctor_reports_nodes_only_if_their_options_differ(fleets: Fleets) -> None:
    tiers = [["high"], ["default"]]
    one = fleets.node("one", tiers=tiers).start()
    fleets.node("two", tiers=tiers).start()
    assert "nodes-settings-differ" not in found_in(examined(one))
    fleets.node("three", tiers=[["default"], ["high"]], queues={"high": {"cap": 3}}).start()
    found = found_in(examined(one))
    assert "the options of high, the order of default and high" in found["nodes-settings-differ"]


def test_doctor_reports_a_killed_node_as_lost_and_accepts_its_successor(fleets: Fleets) -> None:
    lease = {"seconds": 3, "renew_seconds": 1}
    one, two = fleets.node("one", lease=lease).start(), fleets.node("two", lease=lease).start()
    two.kill_all()
    until(lambda: "node-lost" in found_in(examined(one, "--no-imports")), "the lost node")
    assert "nodes-one-host" not in found_in(examined(one, "--no-imports"))


# The archive


def members(archive: Path) -> dict[str, str]:
    """Return the content of each file in an archive, by file name without the folder."""
    with tarfile.open(archive) as opened:
        found = {entry.name.partition("/")[2]: opened.extractfile(entry) for entry in opened}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


@pytest.fixture
def leaky(fleets: Fleets, redis_client: redis.Redis, tmp_path: Path) -> RunningFleet:
    """Return a fleet with a secret in each source of the support archive."""
    user = f"user-{os.getpid()}"
    redis_client.execute_command(  # type: ignore[no-untyped-call]  # redis-py does not type it
        "ACL", "SETUSER", user, "on", ">s3cr3t-p@ss/word", "~*", "&*", "+@all"
    )
    fleet = fleets.make()
    url = f"redis://{user}:s3cr3t-p%40ss%2Fword@{fleet.url.removeprefix('redis://')}"
    (tmp_path / "url").write_text(f"{url}\n")
    (tmp_path / "token").write_text("s3cr3t-token-of-http\n")
    (tmp_path / "leaky.py").write_text(LEAKY_TASKS)
    fleet.environment |= {
        "DATABASE_URL": "postgres://shop:s3cr3t-pg@db.example/shop",
        "STRIPE_API_KEY": "s3cr3t_live_key",
        "CACHE_URL": url,
    }
    del fleet.settings["redis_url"]
    fleet.edit(
        imports=["tasks", "leaky"],
        redis_url_file=str(tmp_path / "url"),
        http={"listen": "127.0.0.1:0", "token_file": str(tmp_path / "token")},
        log={"capture_output": True},
        schedules={"nightly": {"task": "leak", "every": 86400, "args": ["s3cr3t-argument-7"]}},
    )
    return fleet.start()


def test_the_doctor_archive_has_every_part_and_no_secret(leaky: RunningFleet) -> None:
    leaky.client.enqueue("leak", args=["s3cr3t-argument-7"], queue="default")
    until(lambda: leaky.log("task.dead"), "a task that failed")
    for planted in ("-pg@", "_live_key", "-p%40ss", "-argument-7", "-in-a-header", " in json", "-in-an-error", "+key"):
        assert f"{MARK}{planted}" in leaky.log_text()
    (leaky.folder / "leaky.py").write_text('raise RuntimeError("mysql://shop:s3cr3t-import@db")\n')
    assert leaky.rota("restart").returncode == 78
    (leaky.folder / "leaky.py").write_text(LEAKY_TASKS)
    assert f"{MARK}-import" in json.dumps(leaky.status()["events"])
    done = leaky.rota("doctor", "--bundle", "a.tar.gz", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    archive = leaky.folder / "a.tar.gz"
    assert archive.stat().st_mode & 0o777 == 0o600
    texts = members(archive)
    assert json.loads(texts["missing.json"]) == {}
    assert texts.keys() == set(re.findall(r"^(\S+\.(?:json|txt)) ", texts["README.txt"], re.MULTILINE)) | {"README.txt"}
    left = {name: re.findall(rf".{{0,40}}{MARK}.{{0,30}}", text) for name, text in texts.items() if MARK in text}
    assert left == {}
    assert_useful(texts, leaky)


def assert_useful(texts: dict[str, str], fleet: RunningFleet) -> None:
    """Check that the archive still contains the information that support needs, although the secrets are masked."""
    assert "mysql://shop:***@db" in texts["status.json"]
    assert "mysql://shop:***@db" in texts["findings.json"]
    assert json.loads(texts["config.json"])["config"]["namespace"] == fleet.namespace
    assert json.loads(texts["config.json"])["config"]["schedules"]["nightly"]["args"] == "***"
    assert json.loads(texts["status.json"])["pid"] == fleet.pid
    assert json.loads(texts["page.json"])["headlines"]
    assert json.loads(texts["audit.json"])["missing"] == 0
    assert json.loads(texts["versions.json"])["server"].startswith(("Valkey", "Redis"))
    assert json.loads(texts["facts.json"])["server"]["settings"]["maxclients"]
    assert [node["state"] for node in json.loads(texts["nodes.json"])] == ["running"]
    assert "rota_workers{" in texts["metrics.txt"]
    lines = [json.loads(line) for line in texts["log.txt"].splitlines() if line.startswith("{")]
    assert {"fleet.starting", "fleet.ready"} <= {line["event"] for line in lines}
    assert "cannot reach postgres://shop:***" in texts["log.txt"]


def test_the_doctor_archive_names_its_missing_parts_with_the_reason(fleets: Fleets, tmp_path: Path) -> None:
    fleet = fleets.make(http={"listen": ""})
    (tmp_path / "own.log").write_text("x" * 2_000_000 + "\nthe last line, password=s3cr3t\n")
    done = fleet.rota("doctor", "--bundle", "a.tar.gz", "--log", "own.log")
    assert done.returncode == 0, done.stdout
    assert done.stderr.endswith("rota: wrote a.tar.gz: read the archive before you send it\n")
    texts = members(fleet.folder / "a.tar.gz")
    missing = json.loads(texts["missing.json"])
    assert missing.keys() == {"status.json", "page.json", "metrics.txt"}
    assert missing["metrics.txt"] == "http.listen turns the exporter off"
    assert "no master is listening at" in missing["status.json"]
    assert texts["log.txt"] == "the last line, password=***\n"
