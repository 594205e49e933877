"""Another program overwrites the keys of a running fleet with arbitrary bytes, wrong types and invalid numbers. The
fleet continues to work, loses neither a process nor a slot, and reports the invalid data.
"""

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rota.protocol.keys import Keys
from rota_supervisor.cli.app import run_app
from support.fleets import Fleets, RunningFleet
from support.foreign import LIVE, Overwritten, Place, every_key, plant
from support.server_fixtures import SHORT_LEASE
from support.servers import Server
from support.waiting import until

# If the key `served` is overwritten, clients warn about unserved queues until a master publishes its queues again.
pytestmark = pytest.mark.filterwarnings("ignore::rota.UnservedQueue")

COMMANDS = {
    ("audit",): {0, 1},
    ("queue", "ls"): {0},
    ("dead", "ls"): {0},
    ("dead", "show", r"\xff\xfe"): {0, 1},
    ("task", "show", LIVE): {0, 1},
    ("task", "show", "nobody"): {1},
    ("status",): {0},
    ("check",): {0, 78},
}
READ_BY_RECOVERY = {"ready_lane", "owners", "lives", "inflight", "pulse"}
REFUSED = 69  # the exit code if the server refuses a command, for example because a key has the wrong type
SEED = int(os.environ.get("FOREIGN_SEED", random.SystemRandom().randrange(1 << 32)))


class Beset:
    """A fleet, with a client of its server. The test uses the client to overwrite the fleet's keys."""

    def __init__(self, fleet: RunningFleet, server: Any, keys: Keys) -> None:
        self.fleet = fleet
        self.server = server
        self.keys = keys
        self.notes = 0
        self.killed: set[int] = set()

    def goes_on(self, what: str) -> None:
        """Check that the fleet still runs tasks. `what` describes the current state of the keys, for the message of a
        failure.
        """
        self.notes += 1
        label = f"{self.notes} {what}"
        self.fleet.client.enqueue("note", args=[label], queue="default")
        self.fleet.wait_for("end", label=label)

    def notes_until_it_left(self, pid: int) -> bool:
        """Run a task, and return whether this worker has exited. An idle worker notices that its list was overwritten
        only when there are tasks.
        """
        self.goes_on("meanwhile")
        return pid not in self.fleet.workers()

    def recovers(self, what: str) -> None:
        """Kill a worker while it runs a task, and check that another worker runs the task again."""
        held = self.fleet.hold(what)
        self.killed.add(held.pid)
        os.kill(held.pid, signal.SIGKILL)
        again = self.fleet.wait_for("start", 2, label=what)[1]
        assert (again.id, again.crashes) == (held.id, 1)
        self.fleet.release(what)
        self.fleet.wait_for("end", label=what)

    def expires(self, what: str) -> None:
        """Add an owner whose lease has expired, and check that the fleet runs the task that the owner held."""
        owner = f"lost:{what}:1"
        label = f"lost {what}"
        body = f'["{owner}","default","note",["{label}"]]'
        self.server.hset(self.keys.tasks, owner, body)
        self.server.rpush(self.keys.inflight(owner), f"{owner} default i 1 1 0 0 0 0 -")
        self.server.zadd(self.keys.owners, {owner: 1})
        self.fleet.wait_for("end", label=label)


@pytest.fixture
def beset(fleets: Fleets, server: Server, namespace: str) -> Iterator[Beset]:
    """Yield a fleet with two workers and a short lease. The fleet has one task that never ends, and queues with a cap,
    a rate and a condition.
    """
    queues = {"capped": {"cap": 1}, "rated": {"rate": "100/s", "condition": "always"}}
    tiers = [["default", "capped", "rated"]]
    conditions = {"always": {"lua": "true"}}
    fleet = fleets.make(lease=SHORT_LEASE, tiers=tiers, queues=queues, conditions=conditions, workers=2)
    fleet.client.enqueue("note", args=[LIVE], queue="default", id=LIVE, delay=3600)
    with redis.Redis.from_url(server.url) as client:
        yield Beset(fleet.start(), client, Keys(namespace))


@pytest.fixture
def check_commands(beset: Beset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs, in this process, every command that reads the fleet's keys. The function checks that
    the output is printable and that docs/cli.md lists the exit code.
    """
    monkeypatch.chdir(beset.fleet.folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(beset.fleet.folder))

    def check(what: str, *, refused: bool = False) -> None:
        for words, codes in COMMANDS.items():
            for more in ((), ("--json",)):
                code = run_app([*words, *more])
                said = "".join(capsys.readouterr())
                assert code in codes | ({REFUSED} if refused else set()), f"{what}: {words}: {code}: {said}"
                assert said.encode()
                assert "Traceback" not in said

    return check


def owner_of_a_worker(beset: Beset) -> str:
    owners: list[str] = [owner.decode(errors="replace") for owner in beset.server.zrange(beset.keys.owners, 0, -1)]
    return next(owner for owner in owners if owner.count(":") == 2)


def places_of(beset: Beset) -> list[Place]:
    return every_key(beset.keys, owner_of_a_worker(beset))


def no_process_died(beset: Beset) -> None:
    """Check that no process died, except workers that the test killed and workers that exited because their in-flight
    list was overwritten.
    """
    assert beset.fleet.log("poller.exited") == beset.fleet.log("exporter.exited") == []
    ended = [line for line in beset.fleet.log("worker.exited") if line["child_pid"] not in beset.killed]
    assert {line["reason"] for line in ended} <= {"lost"}
    assert beset.fleet.log("fleet.call_failed") == []


def no_slot_leaks(beset: Beset) -> None:
    """Check that every slot in use belongs to a living process."""
    until(beset.fleet.is_whole, "all its workers")
    children = beset.fleet.children()
    assert all(child["state"] == "ready" for child in children)
    assert len([child for child in children if child["role"] == "worker"]) == 2
    assert max(child["slot"] for child in children) < 32


@pytest.mark.timeout(240)
def test_fleet_survives_arbitrary_values_in_its_keys(
    beset: Beset, check_commands: Any, request: pytest.FixtureRequest
) -> None:
    """If this test fails, it shows its seed. Set FOREIGN_SEED to that seed to repeat the test."""
    request.node.add_report_section("call", "seed", f"FOREIGN_SEED={SEED}")
    chance = random.Random(SEED)
    for place in places_of(beset):
        plant(beset.server, place, chance)
        beset.goes_on(place.name)
        check_commands(place.name)
        assert beset.fleet.metrics().total("rota_redis_up") == 1
        if place.name in READ_BY_RECOVERY:
            beset.recovers(place.name)
            beset.expires(place.name)
    beset.recovers("in the end")
    beset.expires("in_the_end")
    no_process_died(beset)
    no_slot_leaks(beset)


@pytest.mark.timeout(240)
def test_a_key_of_the_wrong_type_blocks_the_fleet_only_until_it_is_repaired(beset: Beset, check_commands: Any) -> None:
    for place in places_of(beset):
        with Overwritten(beset.server, place):
            check_commands(place.name, refused=True)
            assert beset.fleet.metrics().total("rota_process_heartbeat_age_seconds") < 60
        beset.goes_on(place.name)
    beset.recovers("in the end")
    beset.expires("in_the_end")
    no_process_died(beset)
    no_slot_leaks(beset)


def test_a_worker_whose_task_list_was_overwritten_is_replaced(beset: Beset) -> None:
    """The worker must be replaced, because an overwritten in-flight list is not repaired."""
    owner = owner_of_a_worker(beset)
    slot = int(owner.split(":")[1])
    [pid] = [row["pid"] for row in beset.fleet.children("worker") if row["slot"] == slot]
    beset.server.set(beset.keys.inflight(owner), "x")
    until(lambda: beset.notes_until_it_left(pid), "the end of the worker")
    until(lambda: beset.fleet.is_whole_without(pid), "its successor")
    until(lambda: beset.server.zscore(beset.keys.owners, owner) is None, "the end of its owner")
    no_process_died(beset)
    no_slot_leaks(beset)
