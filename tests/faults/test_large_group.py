"""A group of 100,000 members, during which workers are killed. The group ends exactly once, and the task that follows
it starts after the last member.
"""

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import redis

from support.fleet_tasks import rest
from support.fleets import Fleets, Measure, RunningFleet
from support.following import after, check_followed_once, wait_until_nothing_is_left
from support.waiting import seconds_until, until

MEMBERS = 100_000
KILLS = 10


@pytest.mark.timeout(240)
def test_large_group_ends_once_despite_killed_workers(
    fleets: Fleets, redis_client: redis.Redis, measured: Measure
) -> None:
    fleet = fleets.start(log={"tasks": "failures"}, restarts={"crash_limit": 50})
    drawn = random.Random(MEMBERS)
    with ThreadPoolExecutor(1) as threads:
        mapped = threads.submit(
            fleet.client.map, rest, range(MEMBERS), chunk=500, max_waiting=5000, id="large", then=after("large")
        )
        for number in range(1, KILLS + 1):
            until(partial(_has_taken, fleet, number * MEMBERS // (KILLS + 1)), "items that are taken", 120)
            os.kill(drawn.choice(sorted(until(fleet.workers, "a worker"))), signal.SIGKILL)
        handle = mapped.result()
    measured("seconds from the last item to the end", seconds_until(lambda: handle.status().state == "ended"))
    ended = handle.status()
    assert (ended.total, ended.done) == (MEMBERS, MEMBERS)
    [started] = fleet.wait_for("start", label="after large")
    assert started.id == ended.followed_by
    fleet.wait_until_nothing_waits(30)
    check_followed_once(fleet.journal(), "large")
    wait_until_nothing_is_left(redis_client, fleet.namespace)
    assert fleet.books_balance()


def _has_taken(fleet: RunningFleet, items: int) -> bool:
    return fleet.client.group("large").status().cursor >= items
