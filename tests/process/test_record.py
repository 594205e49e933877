"""A run that was recorded is replayed through the master's core, with the same effects."""

import json
import os
import signal
from pathlib import Path

from bench import until
from masters import ON_ONE_SERVER, Mastered
from replaying import differences
from servers import Server

pytestmark = ON_ONE_SERVER


def test_a_recorded_run_replays_to_the_same_effects(server: Server, namespace: str, tmp_path: Path) -> None:
    fleet = Mastered(server, namespace, tmp_path, "workers = 2\n")
    recorded = tmp_path / "recorded.jsonl"
    try:
        fleet.start("--record", str(recorded))
        fleet.push("hold", "x")
        holder = until(lambda: fleet.starts("x"))[0]
        os.kill(holder, signal.SIGKILL)
        until(lambda: fleet.log("task.recovered"), "what it ran is given back")
        fleet.configure("workers = 3\n")
        fleet.signal(signal.SIGHUP)
        until(lambda: len(fleet.children("worker", "ready")) == 3)
        fleet.release()
        fleet.signal(signal.SIGTERM)
        assert fleet.exit_code() == 0
    finally:
        fleet.close()
    kinds = {json.loads(line)["items"][0][1]["class"] for line in recorded.read_text().splitlines()[1:]}
    met = {kind.rpartition(":")[2] for kind in kinds}
    assert {"Ticked", "Died", "Requested", "OwnersRegistered", "OwnerRetired", "ConfigurationRead", "Looked"} <= met
    assert list(differences(recorded)) == []
