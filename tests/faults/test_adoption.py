"""Two nodes adopt items from legacy lists while their pollers are killed at random. No item is lost or runs twice, and
the items start in the order in which they were due.
"""

import json
import os
import random
import signal
import time
import uuid
from typing import Final

import pytest
import redis

from support.fleets import Fleets, Measure, RunningFleet
from support.waiting import until

ITEMS: Final = 150  # the number of items that are due at once, and also the number of items that are due later
KILLS: Final = 12
SPREAD_SECONDS: Final = 4.0
AHEAD_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 60.0
NODES: Final = ("a", "b")


@pytest.fixture
def names(namespace: str) -> tuple[str, str]:
    """Return the keys of the list and the sorted set to which the producers of this test push."""
    return f"queue:{namespace}", f"delayed:{namespace}"


def start_nodes(fleets: Fleets, names: tuple[str, str]) -> list[RunningFleet]:
    """Start two nodes that together run only one task at a time, so that tasks start in the order of the lanes."""
    nodes = [
        fleets.node(
            name,
            workers=1,
            pollers=2,
            queues={"default": {"cap": 1}},
            adopt={names[0]: {"queue": "default"}, names[1]: {}},
            restarts={"backoff_seconds": 0.05, "backoff_max_seconds": 0.2},
        ).launch()
        for name in NODES
    ]
    for node in nodes:
        until(node.is_whole, "a node that is ready")
    return nodes


def produce(server: "redis.Redis", names: tuple[str, str], number: int, begins_at: float) -> None:
    """Push two items as handwritten producers do. The first item is due now and has one of the two legacy forms. The
    second item is due later.
    """
    task_id = str(uuid.uuid4())
    label = f"now-{number}"
    item = ["note", [label]] if number % 3 == 0 else [task_id, "default", "note", [label]]
    server.rpush(names[0], json.dumps(item))
    due_at = begins_at + AHEAD_SECONDS + SPREAD_SECONDS * (number + 1) / ITEMS
    later = [str(uuid.uuid4()), "default", "note", [f"due-{number}"]]
    server.zadd(names[1], {json.dumps(later): due_at})


def kill_a_poller(nodes: list[RunningFleet], chance: random.Random) -> None:
    pollers = sorted(chance.choice(nodes).pids("poller", "ready"))
    if pollers:
        os.kill(chance.choice(pollers), signal.SIGKILL)


def test_legacy_items_are_adopted_once_and_in_order_despite_killed_pollers(
    fleets: Fleets, redis_client: "redis.Redis", names: tuple[str, str], measured: Measure
) -> None:
    nodes = start_nodes(fleets, names)
    chance = random.Random(13)
    begins_at = time.time()
    for number in range(ITEMS):
        produce(redis_client, names, number, begins_at)
        if number % (ITEMS // KILLS) == 0:
            kill_a_poller(nodes, chance)
        time.sleep(SPREAD_SECONDS / ITEMS)  # a pause between two pushes, so that pollers can die in between
    fleet = nodes[0]
    until(lambda: len(fleet.journal("start")) >= 2 * ITEMS, "the start of every item", DRAIN_SECONDS)
    fleet.wait_until_nothing_waits(DRAIN_SECONDS)
    starts = fleet.journal("start")
    assert [line.label for line in starts if line.label.startswith("now")] == [f"now-{n}" for n in range(ITEMS)]
    assert [line.label for line in starts if line.label.startswith("due")] == [f"due-{n}" for n in range(ITEMS)]
    assert not any(redis_client.exists(name) for name in names)
    killed = sum(len(node.log("poller.exited")) for node in nodes)
    assert killed >= KILLS / 2
    lags = [line.at - line.due_at for line in starts if line.label.startswith("due")]
    assert min(lags) >= 0
    measured("most lag in seconds of an adopted item while pollers are killed", max(lags))
    assert fleet.books_balance()
