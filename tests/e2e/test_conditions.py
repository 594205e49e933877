"""Conditions in a running fleet. A queue opens and closes. Lua code that could block the server is refused. A condition
that fails is reported, and closes only its own queue.
"""

import time

from support.fleets import Fleets, RunningFleet
from support.waiting import until

OPEN_SECONDS = 2.0
TIERS = [["gated", "default"]]
QUEUES = {"gated": {"condition": "window"}}
OFTEN = {"renew_seconds": 0.5}  # the master reads which queues are closed each time it renews its lease


def lua(text: str) -> dict[str, dict[str, str]]:
    return {"window": {"lua": text}}


def enqueue(fleet: RunningFleet, label: str, queue: str = "gated") -> None:
    fleet.client.enqueue("note", args=[label], queue=queue)


def closed(fleet: RunningFleet) -> list[tuple[str, str, str]]:
    return [(row["queue"], row["condition"], row["error"]) for row in fleet.status()["closed"]]


def test_a_condition_opens_and_closes_only_its_queue(fleets: Fleets) -> None:
    opens = time.time() + 10
    text = f"-- a window\nlocal age = now - {opens:.6f}\nreturn age >= 0 and age < {OPEN_SECONDS}\n"
    fleet = fleets.make(tiers=TIERS, queues=QUEUES, conditions={"window": {"lua": "window.lua"}}, lease=OFTEN)
    (fleet.folder / "window.lua").write_text(text)
    fleet.start()
    enqueue(fleet, "early")
    enqueue(fleet, "other", "default")
    fleet.wait_for("end", label="other")
    until(lambda: closed(fleet) == [("gated", "window", "")], "the master reports the closed queue")
    assert "closed by window" in fleet.rota("queue", "ls").stdout
    assert "gated is closed by its condition window" in fleet.rota("status").stdout
    assert fleet.metrics().total("rota_queue_closed", queue="gated") == 1

    [start] = fleet.wait_for("start", label="early")
    assert opens <= start.at, "the clock of the server is that of this machine"
    until(lambda: time.time() > opens + OPEN_SECONDS, "the end of the window")
    enqueue(fleet, "late")
    until(lambda: fleet.metrics().total("rota_queue_closed_age_seconds", queue="gated") > 0, "the gauge reports it")
    assert not fleet.journal("start", label="late")

    fleet.edit(conditions={"window": {"hours": "00:00-24:00 Europe/Zurich"}})
    workers = fleet.workers()
    fleet.hup()
    fleet.wait_for("end", label="late")
    assert fleet.workers() == workers, "a condition is no matter of the workers"
    until(lambda: not closed(fleet), "the master reports no closed queue")


def test_bad_conditions_are_refused_and_failing_ones_close_their_queue(fleets: Fleets) -> None:
    fleet = fleets.start(tiers=TIERS, queues=QUEUES, conditions=lua("return true"), lease=OFTEN)
    fleet.edit(conditions=lua("while true do end"))
    refused = fleet.rota("reload")
    assert refused.returncode == 78
    assert 'conditions.window.lua: line 1, character 1: "while" is not allowed in a condition' in refused.stderr
    assert fleet.rota("check").returncode == 78
    enqueue(fleet, "goes on")
    fleet.wait_for("end", label="goes on")

    fleet.edit(conditions=lua("local most = ready\nreturn most + nil"))
    assert fleet.rota("reload").returncode == 0
    until(lambda: fleet.log("condition.failed"), "a line of the log")
    enqueue(fleet, "kept")
    for label in ("a", "b", "c"):
        enqueue(fleet, label, "default")
        fleet.wait_for("end", label=label)
    assert not fleet.journal("start", label="kept")
    [failed] = fleet.log("condition.failed")
    assert (failed["queue"], failed["condition"]) == ("gated", "window")
    assert failed["error"] == "condition:2: attempt to perform arithmetic on a nil value"
    assert failed["error"] in fleet.rota("queue", "ls").stdout
    assert fleet.metrics().total("rota_condition_errors_total", queue="gated") >= 1

    fleet.edit(conditions=lua("running < 1"))
    assert fleet.rota("reload").returncode == 0
    fleet.wait_for("end", label="kept")
    until(lambda: fleet.log("condition.works"), "a line of the log")
