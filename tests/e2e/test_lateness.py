"""The lateness that a fleet reports for a queue. It is exactly the highest lag of all starts, not the limit of a
histogram bucket. Once the queue is on time again, the message about it is in the past tense.
"""

import json
import re
import time
from typing import Any, Final

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

OBJECTIVE_SECONDS: Final = 1.0
HELD_SECONDS: Final = 3.3  # the lag of the first task, well inside the histogram bucket whose upper edge is 5 s
DEADLINE_SECONDS: Final = 60.0


def row_of(fleet: RunningFleet) -> dict[str, Any]:
    _, body = fleet.get("/status.json")
    status = json.loads(body)
    [row] = [each for each in status["queues"] if each["name"] == "default"]
    lines = [line for line in status["headlines"] if line["where"] == "queues/default"]
    return {**row, "line": lines[0] if lines else {"level": "good", "text": ""}}


def test_the_lateness_of_a_queue_is_its_worst_lag_and_later_shown_as_past(fleets: Fleets) -> None:
    fleet = fleets.start(workers=2, queues={"default": {"lag_objective_seconds": OBJECTIVE_SECONDS}})
    fleet.client.pause("default")
    for number in range(8):
        fleet.client.enqueue("note", args=[str(number)], queue="default")
    time.sleep(HELD_SECONDS)
    fleet.client.resume("default")
    fleet.wait_for("end", 8)
    until(lambda: row_of(fleet)["late"]["starts"] == 8, lambda: row_of(fleet), DEADLINE_SECONDS)
    seen = row_of(fleet)
    worst = fleet.metrics().total("rota_task_lag_worst_seconds", queue="default")
    assert HELD_SECONDS <= worst < 5 * HELD_SECONDS
    assert seen["late"]["worst_seconds"] == worst
    assert seen["lag"]["p99_seconds"] != worst, "the exact lag is shown, not the edge of a bucket"
    until(
        lambda: row_of(fleet)["line"]["text"].startswith("queue default was late until "),
        lambda: row_of(fleet)["line"],
        DEADLINE_SECONDS,
    )
    line = row_of(fleet)["line"]
    assert line["level"] == "warn"
    assert re.fullmatch(
        rf"queue default was late until [\d:]{{8}} UTC: {worst:.1f} s, but its objective is 1.0 s", line["text"]
    )
