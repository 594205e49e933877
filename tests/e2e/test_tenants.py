"""Queues that belong to a pattern. Workers serve these queues in turn, and queues that the fleet has forgotten leave no
data in Redis.
"""

import signal
from collections import Counter
from collections.abc import Iterator

import pytest
import redis

from rota import Call, UnservedQueue
from rota.protocol.keys import Keys
from support.fleet_readings import Scrape
from support.fleets import RunningFleet, running_fleet
from support.servers import Server
from support.waiting import until

TENANTS = 10_000
DELAYED = 100
LARGE, SMALL = 20_000, 10
TOP = 5
FORGOTTEN_SECONDS = 120.0
NAMED = 2  # number of queues that the tiers name, apart from the pattern
ROUND = ["tenant-large", "tenant-blue", "tenant-green"]


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("tenants")
    settings = {
        "workers": 1,
        "pollers": 2,
        "tiers": [["gate"], ["tenant-*"], ["default"]],
        "queues": {"tenant-*": {"lag_objective_seconds": 600}},
        "metrics": {"top_queues": TOP},
        "limits": {"forget_queue_seconds": 0.5},
        "lease": {"seconds": 2, "renew_seconds": 0.5},  # a short lease makes sweeps frequent
        "log": {"tasks": "failures"},
    }
    with running_fleet(server.url, folder.name, folder, **settings) as running:
        yield running


@pytest.fixture
def connection(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=server.socket_path, decode_responses=True) as made:
        yield made


def until_forgotten(fleet: RunningFleet, connection: redis.Redis) -> None:
    queues = Keys(fleet.namespace).queues
    until(lambda: connection.scard(queues) == NAMED, "that every tenant is forgotten", FORGOTTEN_SECONDS)
    assert fleet.rota_json("queue", "ls", "tenant-*") == []


def test_small_tenants_take_turns_with_a_very_large_one(fleet: RunningFleet) -> None:
    fleet.hold("gate", queue="gate")
    for queue, count in zip(ROUND, (LARGE, SMALL, SMALL), strict=True):
        fleet.client.enqueue_many(Call("toil", args=[f"{queue}{number}"], queue=queue) for number in range(count))
    fleet.release("gate")
    served = [line.queue for line in fleet.wait_for("start", 3 * SMALL + 2, name="toil")][: 3 * SMALL]

    assert Counter(served) == dict.fromkeys(ROUND, SMALL)
    assert all(sorted(served[at : at + 3]) == sorted(ROUND) for at in range(0, 3 * SMALL, 3))
    rows = {row["queue"]: row for row in fleet.rota_json("queue", "ls")}
    assert rows["tenant-large"]["ready"] > LARGE / 2
    fleet.rota("queue", "purge", "tenant-large", "--yes")


def sizes(connection: redis.Redis, namespace: str) -> dict[str, int]:
    """Return the size of each key of the namespace. Keys with the records of ended tasks and of recent calls are left
    out.
    """
    keys = Keys(namespace)
    size = {"hash": "hlen", "set": "scard", "zset": "zcard", "list": "llen", "stream": "xlen", "string": "strlen"}
    found = {}
    for key in map(str, connection.scan_iter(match=f"{{{namespace}}}:*", count=1000)):
        if not key.startswith((keys.ends, f"{{{namespace}}}:sent:")):
            found[key] = int(getattr(connection, size[str(connection.type(key))])(key))
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return the keys that are new or have grown, with their size in `after`."""
    return {key: size for key, size in after.items() if size > before.get(key, 0)}


def series(scrape: Scrape) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return set(scrape.values)


def scrape_with(fleet: RunningFleet, ready: int) -> Scrape:
    """Wait until the metrics show this number of ready tasks. Returns the metrics."""

    def found() -> Scrape | None:
        scrape = fleet.metrics()
        return scrape if scrape.total("rota_queue_ready_tasks") == ready else None

    scrape = until(found, f"{ready} ready tasks in the metrics")
    assert scrape is not None
    return scrape


def test_nothing_is_left_of_ten_thousand_finished_tenants(fleet: RunningFleet, connection: redis.Redis) -> None:
    # A histogram has no series before its first observation, so run an immediate and a delayed task.
    for delay in (0.0, 0.1):
        fleet.client.enqueue("note", args=["first"], queue="tenant-first", delay=delay)
    fleet.wait_for("end", 2, label="first")
    until_forgotten(fleet, connection)
    before, seen = sizes(connection, fleet.namespace), fleet.metrics()

    fleet.hold("meanwhile", queue="gate")
    delays = [0.1] * DELAYED + [0.0] * (TENANTS - DELAYED)
    fleet.client.enqueue_many(
        Call("note", args=[str(number)], queue=f"tenant-{number}", delay=delay) for number, delay in enumerate(delays)
    )
    busy = scrape_with(fleet, TENANTS)
    shown = [labels for name, labels in series(busy) if name == "rota_queue_ready_tasks"]
    assert len(shown) == NAMED + TOP + 1, "two by name, the largest, and the rest"
    fleet.release("meanwhile")
    until_forgotten(fleet, connection)

    assert len(fleet.journal("end", name="note")) == TENANTS + 2
    assert grown(before, sizes(connection, fleet.namespace)) == {}
    gone = scrape_with(fleet, 0)
    left = {name for name, labels in series(gone) ^ series(seen) if dict(labels).get("task") != "note"}
    assert left <= {"rota_redis_errors_total"}  # this series appears if the server was too busy to reply within 0.5 s
    assert not gone.fallen_since(busy)
    done = gone.total("rota_tasks_processed_total", queue="tenant-*", outcome="done")
    assert done - seen.total("rota_tasks_processed_total", queue="tenant-*", outcome="done") == TENANTS
    promoted = "rota_poller_promoted_total"
    assert gone.total(promoted, queue="tenant-*") - seen.total(promoted, queue="tenant-*") == DELAYED
    assert fleet.books_balance()


def test_a_pattern_added_by_a_reload_serves_waiting_tasks(fleet: RunningFleet) -> None:
    with pytest.warns(UnservedQueue, match="extra-1"):
        fleet.client.enqueue("note", args=["early"], queue="extra-1")
    [row] = fleet.rota_json("queue", "ls", "extra-*")
    assert (row["ready"], row["served"]) == (1, False), "no worker knows the queue"
    fleet.edit(tiers=[["gate"], ["tenant-*", "extra-*"], ["default"]])
    fleet.signal(signal.SIGHUP)
    fleet.wait_for("end", label="early")
    until(lambda: fleet.rota_json("queue", "ls", "extra-1")[0]["served"], "the queue is published as served")
