"""A fleet applies changes to its configuration file when it receives HUP. A file that is not valid changes nothing."""

import time
from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from support.fleets import Fleets, Measure, RunningFleet
from support.server_fixtures import Producer, extra_runs, wait_until_all_ran
from support.waiting import until

SUCCESSFUL = "rota_config_last_reload_successful"
LONGEST_GAP_SECONDS: Final = 0.1
ALONE_SECONDS: Final = 5.0
BAD_CODE: Final = (
    "raise RuntimeError('no')",
    "raise SystemExit(3)",
    "import os; os._exit(7)",
    "import ctypes; ctypes.string_at(0)",
    "import time; time.sleep(600)",
    "import os, signal; os.kill(os.getpid(), signal.SIGABRT)",
    "import nowhere_at_all",
    "import rota\n@rota.on_worker_start\ndef start(): raise RuntimeError('no')",
    "import rota, os\n@rota.on_worker_start\ndef start(): os._exit(3)",
    "import rota\n@rota.task(queue='unserved')\ndef stray(): ...",
)
HELD = tuple(f"held{number}" for number in range(6))


def others(fleet: RunningFleet) -> dict[str, set[int]]:
    """Return the pids of all children that are not workers, by role."""
    return {role: fleet.pids(role, "ready") for role in ("zygote", "poller", "exporter")}


def test_a_reload_changes_the_number_of_workers_and_running_tasks_finish(fleets: Fleets) -> None:
    fleet = fleets.start(workers=4)
    four, rest = fleet.workers(), others(fleet)
    starts = {label: fleet.hold(label) for label in HELD[:3]}

    fleet.edit(workers=8)
    fleet.hup()
    eight = fleet.until_workers(8)
    assert four < eight
    assert others(fleet) == rest

    starts |= {label: fleet.hold(label) for label in HELD[3:]}
    fleet.edit(workers=2)
    fleet.hup()
    until(lambda: fleet.metrics().total("rota_workers_desired") == 2, "two workers are desired")
    until(lambda: len(fleet.workers()) == 2, "two workers that stay")
    assert [line.label for line in fleet.journal("end")] == []
    for label in HELD:
        fleet.release(label)
    fleet.wait_for("end", len(HELD))
    two = fleet.until_workers(2)
    assert two < eight
    assert others(fleet) == rest
    ends = {line.label: line.pid for line in fleet.journal("end")}
    assert ends == {label: start.pid for label, start in starts.items()}
    assert len(fleet.journal("start")) == len(HELD)
    assert fleet.metrics().total(SUCCESSFUL) == 1


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('workers = "many"', "workers", "many"),
        ("workers = -2", "workers", "-2"),
        ("workerz = 3", "workerz", 'did you mean "workers"'),
        ('tiers = [["default", "twice"], ["twice"]]', "tiers[1][0]", "twice"),
    ],
)
def test_a_reload_of_an_invalid_file_changes_nothing_and_logs_the_fault(
    fleets: Fleets, text: str, path: str, message: str
) -> None:
    fleet = fleets.start()
    workers, rest = fleet.workers(), others(fleet)
    good = (fleet.folder / "rota.toml").read_text()

    fleet.write(f"{text}\n{good.replace('workers = 2', '') if path == 'workers' else good}")
    fleet.hup()
    until(lambda: fleet.metrics().total(SUCCESSFUL) == 0, "a reload refused")
    [rejected] = fleet.log("config.rejected")
    assert rejected["path"] == path
    assert message in rejected["error"]
    assert (fleet.workers(), others(fleet)) == (workers, rest)

    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    fleet.edit(workers=3)
    fleet.hup()
    fleet.until_workers(3)
    assert fleet.metrics().total(SUCCESSFUL) == 1
    assert fleet.metrics().total("rota_config_reloads_total", result="failure") == 1


def test_a_reload_of_a_file_that_is_not_toml_changes_nothing(fleets: Fleets) -> None:
    fleet = fleets.start()
    workers = fleet.workers()
    fleet.write("workers = = 3\n")
    result = fleet.rota("reload")
    assert result.returncode == 78
    fleet.hup()
    until(lambda: fleet.log("config.rejected"))
    assert "line 1" in fleet.log("config.rejected")[0]["error"]
    assert fleet.workers() == workers


def test_a_reload_of_a_module_that_does_not_import_changes_nothing(fleets: Fleets) -> None:
    fleet = fleets.start()
    workers = fleet.workers()
    fleet.edit(imports=["tasks", "nowhere"])
    result = fleet.rota("reload")
    assert result.returncode == 78
    assert "nowhere" in result.stderr
    assert fleet.metrics().total(SUCCESSFUL) == 0
    [rejected] = fleet.log("config.rejected")
    assert "nowhere" in rejected["path"] + rejected["error"]
    assert fleet.workers() == workers


def test_a_reload_brings_new_code_to_the_workers_without_a_pause(fleets: Fleets) -> None:
    fleet = fleets.start()
    before = fleet.workers()
    (fleet.folder / "more.py").write_text(
        "import rota\nimport tasks\n\n@rota.task\ndef extra():\n    tasks.write('extra', '')\n"
    )
    fleet.edit(imports=["tasks", "more"])
    assert fleet.rota("reload").returncode == 0
    fleet.client.enqueue("extra", queue="default")
    until(lambda: fleet.until_workers(2).isdisjoint(before), "new workers only")
    fleet.wait_for("extra")


def test_a_killed_child_of_any_role_is_replaced(fleets: Fleets) -> None:
    fleet = fleets.start()
    for role in ("poller", "exporter", "zygote"):
        fleet.kill_child(role)
        until(fleet.is_whole, "a whole fleet")
    fleet.client.enqueue("note", args=["due"], queue="default", delay=0.1)
    fleet.wait_for("end", label="due")


def longest_gap(fleet: RunningFleet, since: float) -> float:
    """Return the longest time in which no task started although a task was due. Tasks that were due before `since` do
    not count.
    """
    starts = sorted((line.at, line.due_at) for line in fleet.journal("start") if line.due_at >= since)
    return max(at - max(before, due_at) for (before, _), (at, due_at) in pairwise(starts))


def outcomes(fleet: RunningFleet) -> tuple[int, int]:
    """Return how many reloads were accepted and how many were refused, according to the log."""
    return len(fleet.log("config.reloaded")), len(fleet.log("config.rejected"))


def _differ(fleet: RunningFleet, before: tuple[int, int]) -> bool:
    return outcomes(fleet) != before


def test_tasks_run_without_a_gap_through_good_and_bad_reloads(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=4, limits={"boot_seconds": 2})
    with Producer(fleet.url, fleet.namespace, **fleet.signing_options) as producer:
        began = time.time()
        time.sleep(ALONE_SECONDS)  # first measure how long the gaps are on this machine without a reload
        alone = longest_gap(fleet, began)
        began = time.time()
        for number, text in enumerate(BAD_CODE):
            (fleet.folder / f"good{number}.py").write_text("import tasks\n")
            (fleet.folder / f"bad{number}.py").write_text(f"{text}\n")
            for name in ("bad", "good"):
                before = outcomes(fleet)
                fleet.edit(imports=["tasks", f"{name}{number}"])
                fleet.hup()
                until(partial(_differ, fleet, before), f"the outcome of {name} code: {text}")
        through = longest_gap(fleet, began)
    assert outcomes(fleet) == (len(BAD_CODE), len(BAD_CODE))
    measured("longest gap without reloads, ms", alone * 1000)
    measured("longest gap through twenty reloads, ms", through * 1000)
    wait_until_all_ran(fleet, producer)
    assert extra_runs(fleet) == {}
    assert through < alone + LONGEST_GAP_SECONDS
