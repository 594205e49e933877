"""Schedules of a fleet's code: run from the first second on, changed by a reload as one transaction, skipped where one
occurrence would overlap with the one before it."""

from typing import Final

from fleets import Fleets
from masters import ON_ONE_SERVER
from waiting import until

_CODE: Final = """

@rota.task(every=1)
def tick(label="{label}"):
    write("start", label)


@rota.task(every=1)
def drag():
    hold("drag")
"""


@ON_ONE_SERVER
def test_schedules_of_code_run_are_reloaded_and_skip_what_would_overlap(fleets: Fleets) -> None:
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
    fleet.wait_for("start", runs + 2, label="first")  # what does not import has changed nothing
    assert fleet.journal("start", label="second") == []
    path.write_text(others + _CODE.format(label="second").replace("def drag", "def dragged"))
    fleet.release("drag")
    assert fleet.rota("restart").returncode == 0
    fleet.wait_for("start", 2, label="second")
    scrape = fleet.metrics()
    assert scrape.total("rota_task_lag_seconds_count", kind="periodic") > 0
    starts = [line.id for line in fleet.journal("start", name="tick")]
    assert len(starts) == len(set(starts))
