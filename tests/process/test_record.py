"""The events of a master are recorded. When the recording is replayed through the core, the core returns the same
effects.
"""

import json
import os
import signal

from support.masters import ON_ONE_SERVER, Mastered
from support.replaying import differences
from support.waiting import until

pytestmark = ON_ONE_SERVER


def test_replaying_a_recorded_run_causes_the_same_effects(fleet: Mastered) -> None:
    recorded = fleet.folder / "recorded.jsonl"
    fleet.start("--record", str(recorded))
    fleet.push("hold", "x")
    holder = until(lambda: fleet.starts("x"))[0]
    os.kill(holder, signal.SIGKILL)
    until(lambda: fleet.log("task.recovered"), "its task is given back")
    fleet.push("hold", "y")
    until(lambda: fleet.starts("y"))
    assert fleet.rota("task", "cancel", "y", "--kill-after", "60").returncode == 0
    until(lambda: fleet.log("task.cancelled"), "the task ends as cancelled")
    fleet.configure("workers = 3\n")
    fleet.hup()
    until(lambda: len(fleet.children("worker", "ready")) == 3)
    fleet.release()
    fleet.term()
    assert fleet.exit_code() == 0
    kinds = {json.loads(line)["items"][0][1]["class"] for line in recorded.read_text().splitlines()[1:]}
    met = {kind.rpartition(":")[2] for kind in kinds}
    assert {"Ticked", "Died", "Requested", "OwnersRegistered", "OwnerReaped", "ConfigurationRead", "SlotsRead"} <= met
    assert "CancelOrdered" in met
    assert list(differences(recorded)) == []
