"""Tiny limits set by the operating system. The fleet works within these limits, or reports at its start which limit is
too low and which value is needed.
"""

import os
from pathlib import Path

import pytest

from rota_supervisor.master.shell.run import NEEDED
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER

pytestmark = ON_ONE_SERVER

TASKS = 50
WORKERS = 3


def under(limit: str, fleet: RunningFleet) -> RunningFleet:
    """Make this fleet start under a limit. `limit` has the arguments of `ulimit`."""
    fleet.prefix = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh"]
    return fleet


def with_mounts(mounts: str, fleet: RunningFleet) -> RunningFleet:
    """Make this fleet start in its own mount namespace, after these mount commands."""
    command = f'mount --make-rprivate / && {mounts} && exec "$@"'
    fleet.prefix = ["unshare", "-m", "sh", "-c", command, "sh"]
    return fleet


def works(fleet: RunningFleet) -> None:
    """Check that the fleet runs tasks, serves its endpoints, replaces its workers, and exits after SIGTERM."""
    fleet.start()
    for number in range(TASKS):
        fleet.client.enqueue("note", args=[str(number)], queue="default")
    fleet.wait_for("end", count=TASKS)
    assert fleet.metrics().total("rota_queue_dead_tasks") == 0
    assert fleet.rota("restart").returncode == 0
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    fleet.term()
    assert fleet.exit_code() == 0
    assert "Traceback" not in fleet.log_text()
    assert fleet.log("fleet.call_failed") == []


def is_refused(fleet: RunningFleet, *words: str) -> None:
    """Check that the fleet exits with code 78 and a message that contains these words. The fleet must not start any
    process or leave anything behind.
    """
    fleet.launch()
    assert fleet.exit_code() == 78
    said = [line for line in fleet.log_text().splitlines() if line.startswith("rota: ")]
    assert all(any(word in line for line in said) for word in words), said
    assert "Traceback" not in fleet.log_text()
    assert fleet.log("fleet.starting") == []
    assert fleet.processes() == []


def test_a_fleet_works_with_64_file_descriptors(fleets: Fleets) -> None:
    works(under("-n 64", fleets.make(workers=WORKERS)))


def test_a_fleet_works_with_the_address_space_that_it_requires(fleets: Fleets) -> None:
    works(under(f"-v {_least('address space') * 1024}", fleets.make(workers=WORKERS)))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("-n 63", "the limit on open files is 63 descriptors, but a fleet needs 64: raise or remove it (ulimit -n"),
        ("-n 16", "the limit on open files is 16 descriptors, but a fleet needs 64: raise or remove it (ulimit -n"),
        (
            "-v 300000",
            "the limit on address space is 292 MB, but a fleet needs {address space}: raise or remove it (ulimit -v",
        ),
        (
            "-v 1000000",
            "the limit on address space is 976 MB, but a fleet needs {address space}: raise or remove it (ulimit -v",
        ),
        (
            "-f 2048",
            "the limit on the size of files is 1 MB, but a fleet needs {the size of files}: raise or remove it (ulimit",
        ),
    ],
)
def test_the_error_about_a_too_low_limit_names_the_required_value(fleets: Fleets, limit: str, message: str) -> None:
    needs = {need.what: need.least for need in NEEDED.values()}
    is_refused(under(limit, fleets.make(workers=WORKERS)), message.format(**needs))


def test_one_error_names_all_limits_that_are_too_low(fleets: Fleets) -> None:
    is_refused(under("-n 32 && ulimit -v 300000", fleets.make()), "on open files is 32", "on address space is 292 MB")


def _least(what: str) -> int:
    return next(need.least for need in NEEDED.values() if need.what == what)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which root alone may do")


@ROOT_ONLY
@pytest.mark.parametrize("size", ["64m", "4k"])
def test_a_fleet_works_with_a_small_dev_shm(fleets: Fleets, size: str) -> None:
    works(with_mounts(f"mount -t tmpfs -o size={size} tmpfs /dev/shm", fleets.make(workers=WORKERS)))


@ROOT_ONLY
def test_a_fleet_runs_in_a_read_only_folder_if_its_socket_is_elsewhere(fleets: Fleets, tmp_path: Path) -> None:
    fleet = fleets.node("node", workers=WORKERS, control={"socket": str(tmp_path / "control")})
    with_mounts(_read_only(fleet), fleet).launch()
    fleet.client.enqueue("note", args=["there"], queue="default")
    fleet.wait_for("end", label="there")
    fleet.term()
    assert fleet.exit_code() == 0
    assert "Traceback" not in fleet.log_text()


@ROOT_ONLY
def test_a_start_in_a_read_only_folder_names_the_setting_to_change(fleets: Fleets) -> None:
    fleet = fleets.make()
    with_mounts(_read_only(fleet), fleet).launch()
    assert fleet.exit_code() == 73
    assert "cannot be written: " in fleet.log_text()
    assert "Read-only file system: set control.socket to another path" in fleet.log_text()
    assert "Traceback" not in fleet.log_text()


def _read_only(fleet: RunningFleet) -> str:
    folder = fleet.folder
    return f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && cd {folder}"
