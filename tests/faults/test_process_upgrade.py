"""Another version of the package is installed while a master runs. New children of this master refuse to start, so that
the two versions never run together.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

import rota
import rota_supervisor
from rota_supervisor import messages
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

QUICK_RESTARTS = {"restarts": {"backoff_seconds": 0.05, "backoff_max_seconds": 0.5}}
OTHER_ABI = messages.ABI + 1


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a copy of the package, which the test replaces with another version."""
    folder = tmp_path / "site"
    for package in (rota, rota_supervisor):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def write_abi(installed: Path, abi: int) -> None:
    """Write this ABI number into the copy, as an upgrade would."""
    path = installed / "rota_supervisor" / "messages.py"
    text = path.read_text()
    [line] = [line for line in text.splitlines() if line.startswith("ABI: Final = ")]
    path.write_text(text.replace(line, f"ABI: Final = {abi}"))


def refusals(fleet: RunningFleet, event: str) -> int:
    return sum(
        f"abi {messages.ABI}" in line["words"] or "another version" in line["words"] for line in fleet.log(event)
    )


@pytest.mark.parametrize("role", ["poller", "exporter", "zygote"])
def test_a_child_of_another_version_refuses_to_start_and_work_continues(
    fleets: Fleets, installed: Path, role: str
) -> None:
    fleet = fleets.node("a", **QUICK_RESTARTS)
    fleet.environment["PYTHONPATH"] = str(installed)
    fleet.environment["PYTHONDONTWRITEBYTECODE"] = "1"
    workers = fleet.start().workers()
    held = fleet.hold("held")
    write_abi(installed, OTHER_ABI)
    [pid] = fleet.pids(role, "ready")
    os.kill(pid, signal.SIGKILL)
    until(lambda: refusals(fleet, f"{role}.exited") >= 3, "refusals")
    assert not fleet.pids(role, "ready")
    fleet.client.enqueue("note", args=["meanwhile"], queue="default")
    fleet.wait_for("end", label="meanwhile")
    fleet.release("held")
    fleet.wait_for("end", label="held")
    assert held.pid in workers
    assert fleet.workers() == workers
    write_abi(installed, messages.ABI)
    until(lambda: fleet.pids(role, "ready"), "a child of the master's own version")
    until(fleet.is_whole, "a whole fleet")
