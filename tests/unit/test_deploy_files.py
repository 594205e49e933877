"""Checks of the systemd unit, the image and the compose file, which neither install nor start anything."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_supervisor.config.model import Config, Limits
from rota_supervisor.exits import ExitCode
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.targets import LEAVE_SECONDS
from support.dashboards import TOP

UNIT = TOP / "deploy" / "systemd" / "rota.service"
UNITS = (UNIT, UNIT.with_name("rota@.service"))
OLDER = UNIT.with_name("before-253.conf")
MAX_EXPOSURE = 2.5  # from 0 (the best) to 10, as computed by `systemd-analyze security`
# The time in seconds that the fleet needs after the drain to release the tasks of killed workers and to stop the
# pollers and the exporter.
LEAVING_SECONDS = 2 * LEAVE_SECONDS
DOCKER = TOP / "deploy" / "docker"
USER = "10001:10001"
PROGRAMS = Path(sys.executable).parent


def unit_settings(path: Path = UNIT) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("with_older", [False, True])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit_without_warnings(tmp_path: Path, unit: Path, with_older: bool) -> None:
    copy = installed(unit, tmp_path)
    if with_older:
        (tmp_path / f"{unit.name}.d").mkdir()
        shutil.copy(OLDER, tmp_path / f"{unit.name}.d")
    checked = analyzed("verify", str(copy).replace("@", "@shop"))
    warnings = [line for line in checked.stderr.splitlines() if not is_known_of_older(line)]
    assert (checked.returncode, warnings) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_rates_the_exposure_of_the_unit_as_low(tmp_path: Path, unit: Path) -> None:
    checked = analyzed("security", "--offline=true", f"--threshold={MAX_EXPOSURE * 10:.0f}", installed(unit, tmp_path))
    assert checked.returncode == 0, checked.stdout[-500:]


def test_the_template_unit_differs_from_the_plain_unit_only_in_instance_names() -> None:
    plain, template = (lines_of(unit) for unit in UNITS)
    assert [line for line in template if "%i" in line] == [
        "Description=Rota worker fleet %i",
        "WorkingDirectory=/srv/%i",
        "Environment=ROTA_CONFIG=/etc/rota/%i.toml",
        "EnvironmentFile=-/etc/rota/%i.environment",
        "RuntimeDirectory=rota-%i",
    ]
    assert len(plain) == len(template)
    assert {one for one, other in zip(plain, template, strict=True) if one != other and "%i" not in other} == set()


def lines_of(unit: Path) -> list[str]:
    """Return the lines of a unit without comments."""
    return [line for line in unit.read_text().splitlines() if not line.startswith("#")]


def installed(unit: Path, folder: Path) -> Path:
    """Copy a unit file to a folder, and replace the program that the unit starts with one that exists on this
    machine.
    """
    program = folder / "rota"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = folder / unit.name
    copy.write_text(unit.read_text().replace("/opt/rota/bin/rota", str(program)))
    return copy


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, or skip the test if it is not installed."""
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI"):
            pytest.fail("no systemd-analyze on the PATH: CI must run it")
        pytest.skip("no systemd-analyze on the PATH")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def is_known_of_older(line: str) -> bool:
    """Whether the line is the warning with which a systemd older than 253 ignores the service type `notify-reload`. For
    such versions, an additional file with another type is shipped.
    """
    version = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.split()[1]) < 253 and line.endswith("Failed to parse service type, ignoring: notify-reload")


def test_the_unit_uses_notify_reload_and_waits_longer_than_a_drain() -> None:
    settings = unit_settings()
    assert settings["Type"] == "notify-reload"
    assert "ExecReload" not in settings  # systemd sends HUP by itself, and ExecReload would send it again
    assert settings["KillMode"] == "mixed"
    assert float(settings["TimeoutStopSec"]) > Limits().drain_seconds + LEAVING_SECONDS
    assert float(settings["WatchdogSec"]) >= 5 * TICK_SECONDS
    assert settings["OOMPolicy"] == "continue"


def test_the_unit_restarts_only_after_temporary_failures() -> None:
    settings = unit_settings()
    assert settings["Restart"] == "on-failure"
    assert {int(code) for code in settings["RestartPreventExitStatus"].split()} == {ExitCode.USAGE, ExitCode.CONFIG}
    assert settings["StartLimitIntervalSec"] == "0"


def test_the_drop_in_for_older_systemd_reloads_with_sighup() -> None:
    assert unit_settings(OLDER) == {"Type": "notify", "ExecReload": "/bin/kill -HUP $MAINPID"}


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a Dockerfile: its words, and the number of its build stage, counted from 0."""

    stage: int
    verb: str
    words: list[str]


def dockerfile() -> list[Step]:
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    steps: list[Step] = []
    stage = -1
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            verb, _, rest = line.partition(" ")
            stage += verb == "FROM"
            steps.append(Step(stage, verb, shlex.split(rest)))
    return steps


def test_hadolint_reports_no_problem_in_the_dockerfile() -> None:
    command = [PROGRAMS / "hadolint", DOCKER / "Dockerfile"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_every_file_copied_into_the_image_exists_and_is_not_ignored() -> None:
    steps = dockerfile()
    stages = [step.words[step.words.index("AS") + 1] for step in steps if "AS" in step.words]
    sent = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for step in steps:
        if step.verb != "COPY":
            continue
        if step.words[0].startswith("--from="):
            assert step.words[0].removeprefix("--from=") in stages
            continue
        for source in step.words[:-1]:
            assert (TOP / source).exists(), source
            assert f"!{source}" in sent
    assert max(step.stage for step in steps) == 1


def test_the_image_runs_unprivileged_and_has_a_health_check() -> None:
    final = [step for step in dockerfile() if step.stage == 1]
    assert [step.words for step in final if step.verb == "USER"] == [[USER]]
    (made,) = [step.words for step in final if step.verb == "RUN"]
    assert [made[made.index(word) + 1] for word in ("--uid", "--gid")] == USER.split(":")
    assert [step.words for step in final if step.verb == "STOPSIGNAL"] == [["SIGTERM"]]
    (health,) = [step.words for step in final if step.verb == "HEALTHCHECK"]
    assert "".join(health).endswith("CMD[rota,health,--ready]")
    assert final[-2:] == [Step(1, "ENTRYPOINT", ["[rota]"]), Step(1, "CMD", ["[run]"])]
    (port,) = [step.words[0] for step in final if step.verb == "EXPOSE"]
    assert Config().http.listen.endswith(f":{port}")


COMPOSE_FILE = DOCKER / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_compose_file_fits_the_schema_of_compose() -> None:
    command = [str(PROGRAMS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_each_compose_service_mounts_only_existing_files(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/]+(:[\d.v]+)?", service["image"])
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DOCKER / source).resolve().exists(), volume
        else:
            assert source in COMPOSE["volumes"], volume
    assert set(service.get("depends_on", [])) <= SERVICES.keys()
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
    assert all(isinstance(value, str) for value in service.get("environment", {}).values())


def test_compose_builds_this_folder_and_allows_time_to_drain() -> None:
    build = SERVICES["fleet"]["build"]
    context = (DOCKER / build["context"]).resolve()
    assert context == TOP
    assert (context / build["dockerfile"]).samefile(DOCKER / "Dockerfile")
    patience = float(SERVICES["fleet"]["stop_grace_period"].removesuffix("s"))
    assert patience > Limits().drain_seconds + LEAVING_SECONDS


def test_compose_gives_the_fleet_one_writable_folder_and_no_privileges() -> None:
    fleet = SERVICES["fleet"]
    assert (fleet["read_only"], fleet["tmpfs"]) == (True, ["/tmp"])
    assert (fleet["cap_drop"], fleet["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert fleet["environment"]["MAIL_OUTBOX"].startswith("/tmp/")
    assert all(volume.endswith(":ro") for volume in fleet["volumes"])


def test_host_names_in_the_compose_file_are_names_of_services() -> None:
    fleet = SERVICES["fleet"]["environment"]["ROTA_REDIS_URL"]
    grafana = SERVICES["grafana"]["environment"]["ROTA_PROMETHEUS_URL"]
    (targets,) = yaml.safe_load((DOCKER / "targets" / "rota.yml").read_text())
    hosts = re.findall(r"(?://)?(\w+):\d+", " ".join([fleet, grafana, *targets["targets"]]))
    assert set(hosts) <= SERVICES.keys()
