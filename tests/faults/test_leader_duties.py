"""The duties that one node performs for the whole fleet: sweeps, scans, schedules and scaling decisions. When the node
that performed them is killed, another node performs them within a lease, and each of them is done once.
"""

import dataclasses
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event
from typing import Any, Final

import pytest
import redis

from rota.child.child_settings import ServerSettings
from rota.child.slot_memory import SharedText, SlotMemory
from rota.poller.poller_bell import BellState
from rota.poller.poller_loop import Rounds
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import AHEAD_SECONDS
from rota.protocol.keys import Keys
from rota.protocol.schedule_store import ScheduleStore
from rota.protocol.store import Store
from rota.schedules.schedule import encode_schedule
from rota.server.address import address_of
from rota.server.connection import ConnectionOptions, connect
from rota.telemetry.recorder import Recorder
from support.child_settings import poller_settings
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.schedule_pollers import TICK
from support.servers import Server
from support.waiting import seconds_until, until

pytestmark = ON_ONE_SERVER
LEASE_SECONDS: Final = 5.0
RECOVERY_SECONDS: Final = 2.0
EVERY_SECOND: Final = {"task": "note", "args": ["tick"], "every": 1, "missed": "all", "overlap": "queue"}
POLLERS: Final = 12
PLACES: Final = 8
HALF_A_LEASE_SECONDS: Final = 10.0  # with the default lease, which these pollers have


def seconds_of_occurrences(fleet: RunningFleet) -> list[float]:
    """Return the times of the occurrences that ran, in order. The times are read from the task ids."""
    return [float(line.id.rpartition(":")[2]) for line in fleet.journal("start", name="note")]


def leaders(client: redis.Redis, namespace: str) -> tuple[str, str]:
    """Return the poller that scans for the fleet, and the node that decides about the pool `default`."""
    keys = Keys(namespace)
    walker: Any = client.hget(keys.pulse, "walker") or b""
    lead: Any = client.hget(keys.scaling("default"), "lead") or b""
    return walker.decode(), lead.decode().partition(" ")[2]


def test_the_duties_of_a_killed_node_move_to_another_one_within_a_lease(
    fleets: Fleets, redis_client: redis.Redis, measured: Measure
) -> None:
    settings: dict[str, Any] = {
        "workers": "1..2",
        "lease": {"seconds": LEASE_SECONDS, "renew_seconds": 1.0},
        "schedules": {"tick": EVERY_SECOND},
    }
    one = fleets.node("one", **settings).start()
    before = until(lambda: all(found := leaders(redis_client, one.namespace)) and found, "the first node leads")
    other = fleets.node("other", **settings).start()
    other.wait_for("start", 3, name="note")
    assert leaders(redis_client, one.namespace) == before
    one.kill_all()

    def has_moved() -> bool:
        return all(now and now != then for now, then in zip(leaders(redis_client, one.namespace), before, strict=True))

    took = seconds_until(has_moved, "the duties move")
    measured("seconds until the duties of a killed node have moved", took)
    assert took < LEASE_SECONDS + RECOVERY_SECONDS
    ran = len(other.journal("start", name="note"))
    other.wait_for("start", ran + 3, name="note")
    times = seconds_of_occurrences(other)
    assert {later - earlier for earlier, later in pairwise(sorted(set(times)))} == {1.0}
    enqueued_once(redis_client, other)


def enqueued_once(client: redis.Redis, fleet: RunningFleet) -> None:
    """Wait until all tasks that were accepted are either delayed or have run under an id of their own. So no occurrence
    was enqueued twice.
    """
    keys = Keys(fleet.namespace)

    def accounts_agree() -> bool:
        accepted = int(client.hget(keys.totals, "accepted:default") or 0)
        ids = {line.id for line in fleet.journal("start", name="note")}
        delayed: Any = client.zrange(keys.delayed, 0, -1)
        waiting = [member for member in delayed if member.decode() not in ids]
        return accepted == len(ids) + len(waiting)

    until(accounts_agree, "as many occurrences as accepted tasks")


class OnePoller:
    """The rounds of a poller, which a thread performs over a real connection until `killed` is set."""

    def __init__(self, url: str, namespace: str) -> None:
        settings = poller_settings(ServerSettings(url, namespace))
        slot = SlotMemory.create(1).slot(0)
        report = PollerReport(Recorder(slot.metrics), 4, SharedText(slot.spare))
        self.listening = BellState()
        self.killed = Event()
        self._rounds = Rounds(settings, Store(namespace), report, time.monotonic, self.listening)
        self._connection = connect(address_of(settings.server), ConnectionOptions("poller"))

    def run(self) -> None:
        """Take each step when it is due."""
        while not self.killed.wait(max(0.0, self._rounds.next_at - time.monotonic())):
            self._rounds.step(self._connection)
        self._connection.close()


@pytest.fixture
def pollers(server: Server, namespace: str) -> Iterator[list[OnePoller]]:
    """More pollers than sweep at the same time, of a fleet with the default lease and one schedule."""
    made = [OnePoller(server.url, namespace) for _ in range(POLLERS)]
    with ThreadPoolExecutor(POLLERS) as pool:
        running = [pool.submit(each.run) for each in made]
        yield made
        for poller in made:
            poller.killed.set()
    for future in running:
        future.result()


def sweeping(pollers: Collection[OnePoller]) -> list[OnePoller]:
    return [each for each in pollers if not each.listening.is_reserve and not each.killed.is_set()]


def test_reserves_take_over_within_half_a_lease_if_all_sweeping_pollers_die(
    pollers: list[OnePoller], server: Server, redis_client: redis.Redis, namespace: str, measured: Measure
) -> None:
    keys = Keys(namespace)
    put_schedule(server.url, namespace)
    until(lambda: len(sweeping(pollers)) == PLACES, "all other pollers are reserves")
    until(lambda: redis_client.zcard(keys.delayed) > 0, "the first occurrences")
    for each in sweeping(pollers):
        each.killed.set()
    took = seconds_until(lambda: len(sweeping(pollers)) == POLLERS - PLACES, "the reserves sweep")
    measured("seconds until reserves have replaced all sweeping pollers", took)
    assert took < HALF_A_LEASE_SECONDS
    until(lambda: occurrences(redis_client, keys)[-1] > time.time() + AHEAD_SECONDS / 2, "further occurrences")
    times = occurrences(redis_client, keys)
    assert {later - earlier for earlier, later in pairwise(times)} == {1.0}
    assert redis_client.hget(keys.totals, "accepted:q") == str(len(occurrences(redis_client, keys))).encode()


def put_schedule(url: str, namespace: str) -> None:
    """Create a schedule with an occurrence every second, of which none may be missed."""
    schedule = dataclasses.replace(TICK, missed="all")
    connection = connect(address_of(ServerSettings(url, namespace)), ConnectionOptions("client"))
    connection.run(ScheduleStore(namespace).put(schedule.name, encode_schedule(schedule)))
    connection.close()


def occurrences(client: redis.Redis, keys: Keys) -> list[float]:
    """Return the due times of all occurrences that were enqueued, which nothing promotes in this test."""
    return [float(row[1]) for row in client.zrange(keys.delayed, 0, -1, withscores=True)]
