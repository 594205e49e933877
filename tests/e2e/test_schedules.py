"""Schedules of a fleet, declared in the code, in the file or by a client. Schedules run from the first second. A reload
changes all schedules in one transaction. If an occurrence would overlap with the previous one, it is skipped.
"""

import json
from typing import Any, Final

import pytest

import rota
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

_CODE: Final = """

@rota.task(every=1)
def tick(label="{label}"):
    write("start", label)


@rota.task(every=1)
def drag():
    hold("drag")
"""

_PERIODIC: Final = """
import rota
from tasks import write


@rota.task(every=1)
def tick():
    write("start", "code")
"""


@ON_ONE_SERVER
def test_schedules_in_code_run_and_are_reloaded_and_skip_overlaps(fleets: Fleets) -> None:
    fleet = fleets.make(workers=2)
    path = fleet.folder / "tasks.py"
    others = path.read_text()
    path.write_text(others + _CODE.format(label="first"))
    fleet.start()
    fleet.wait_for("start", 2, label="first")
    assert {line["schedule"] for line in fleet.log("schedule.declared")} == {"tick", "drag"}
    fleet.wait_for("start", label="drag")
    until(lambda: fleet.log("schedule.skipped"), "an occurrence that would overlap")
    assert fleet.metrics().total("rota_schedule_occurrences_total", schedule="drag", outcome="skipped") >= 1
    path.write_text(others + _CODE.format(label="second") + "\n1 / 0\n")
    assert fleet.rota("restart").returncode != 0
    runs = len(fleet.journal("start", label="first"))
    fleet.wait_for("start", runs + 2, label="first")  # a reload with code that cannot be imported changes nothing
    assert fleet.journal("start", label="second") == []
    path.write_text(others + _CODE.format(label="second").replace("def drag", "def dragged"))
    fleet.release("drag")
    assert fleet.rota("restart").returncode == 0
    fleet.wait_for("start", 2, label="second")
    scrape = fleet.metrics()
    assert scrape.total("rota_task_lag_seconds_count", kind="periodic") > 0
    starts = [line.id for line in fleet.journal("start", name="tick")]
    assert len(starts) == len(set(starts))


def filed(label: str, **more: Any) -> dict[str, Any]:
    return {"filed": {"task": "note", "every": 1, "args": [label], **more}}


@ON_ONE_SERVER
def test_a_reload_only_changes_schedules_of_the_file(fleets: Fleets) -> None:
    fleet = fleets.make(imports=["tasks", "periodic"], workers=1, schedules=filed("file"))
    (fleet.folder / "periodic.py").write_text(_PERIODIC)
    fleet.start()
    fleet.client.schedules.put("put", "note", rota.Every(1, args=["client"], queue="default"))
    for label in ("code", "file", "client"):
        fleet.wait_for("start", 2, label=label)
    check_sources(fleet)
    workers = fleet.workers()

    fleet.edit(schedules=filed("changed"))
    fleet.hup()
    fleet.wait_for("start", 2, label="changed")
    assert [line["changes"] for line in fleet.log("config.reloaded")] == [["schedules"]]
    assert fleet.workers() == workers
    check_refused(fleet, filed("broken", queue="nowhere"), 'schedules.filed.queue: queue "nowhere" is in no tier')
    check_refused(fleet, filed("broken", task="nothing"), "schedules.filed.task: no imported module defines the task")
    assert fleet.client.schedules.remove("put")
    assert {each.name: each.args for each in fleet.client.schedules.list()} == {"tick": (), "filed": ("changed",)}
    fleet.edit(schedules={})
    fleet.hup()
    # The schedule disappears at once, before a lease expires.
    until(lambda: [each.name for each in fleet.client.schedules.list()] == ["tick"])


def check_sources(fleet: RunningFleet) -> None:
    sources = {"tick": "code", "filed": "file", "put": "client"}
    assert {each.name: each.source for each in fleet.client.schedules.list()} == sources
    assert {row["name"]: row["source"] for row in fleet.rota_json("status")["schedules"]} == sources
    rows = json.loads(fleet.get("/status.json")[1])["schedules"]
    assert {row["name"]: row["state"] for row in rows} == dict.fromkeys(sources, "waiting")
    with pytest.raises(rota.ScheduleDeclared):
        fleet.client.schedules.remove("filed")


def check_refused(fleet: RunningFleet, schedules: dict[str, Any], fault: str) -> None:
    """Check that both `rota check` and a reload refuse this file."""
    fleet.edit(schedules=schedules)
    for verb in ("check", "reload"):
        done = fleet.rota(verb)
        assert (done.returncode, fault in done.stderr) == (78, True), (verb, done.stderr)
