"""Schedules of code, file and client in one fleet, and what becomes of them when the file is read again."""

import json
from typing import Any, Final

import pytest

import rota
from fleets import Fleets, RunningFleet

CODE: Final = """
import rota
from tasks import write

@rota.task(every=1)
def tick():
    write("start", "code")
"""


def filed(label: str, **more: Any) -> dict[str, Any]:
    return {"filed": {"task": "note", "every": 1, "args": [label], **more}}


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    """A fleet with a schedule in its code and one in its file."""
    made = fleets.make(imports=["tasks", "periodic"], workers=1, schedules=filed("file"))
    (made.folder / "periodic.py").write_text(CODE)
    return made.start()


def test_schedules_of_code_file_and_client_run_side_by_side_and_a_reload_changes_the_files(fleet: RunningFleet) -> None:
    fleet.client.schedules.put("put", "note", rota.Every(1, args=["client"], queue="default"))
    for label in ("code", "file", "client"):
        fleet.wait_for("start", 2, label=label)
    says_where_each_comes_from(fleet)
    workers = fleet.workers()

    fleet.edit(schedules=filed("changed"))
    fleet.hup()
    fleet.wait_for("start", 2, label="changed")
    assert [line["changes"] for line in fleet.log("config.reloaded")] == [["schedules"]]
    assert fleet.workers() == workers
    is_refused(fleet, filed("broken", queue="nowhere"), 'schedules.filed.queue: queue "nowhere" stands in no tier')
    is_refused(fleet, filed("broken", task="nothing"), "schedules.filed.task: no imported module defines the task")
    assert fleet.client.schedules.remove("put")
    assert {each.name: each.args for each in fleet.client.schedules.list()} == {"tick": (), "filed": ("changed",)}


def says_where_each_comes_from(fleet: RunningFleet) -> None:
    sources = {"tick": "code", "filed": "file", "put": "client"}
    assert {each.name: each.source for each in fleet.client.schedules.list()} == sources
    assert {row["name"]: row["source"] for row in fleet.asked("status")["schedules"]} == sources
    rows = json.loads(fleet.get("/status.json")[1])["schedules"]
    assert {row["name"]: row["state"] for row in rows} == dict.fromkeys(sources, "waiting")
    assert ">filed<" in fleet.get("/")[1]
    with pytest.raises(rota.ScheduleDeclared):
        fleet.client.schedules.remove("filed")


def is_refused(fleet: RunningFleet, schedules: dict[str, Any], fault: str) -> None:
    """Such a file is not taken, neither by a check nor by a reload."""
    fleet.edit(schedules=schedules)
    for verb in ("check", "reload"):
        done = fleet.rota(verb)
        assert (done.returncode, fault in done.stderr) == (78, True), (verb, done.stderr)
