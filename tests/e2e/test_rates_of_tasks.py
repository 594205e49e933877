"""Tasks whose rate applies to each value of an argument separately. The tasks run in a fleet of two nodes, whose
workers are killed in the meantime.
"""

import os
import signal
from collections.abc import Sequence
from typing import Final

import pytest
import redis

from rota import Call
from support.fleets import Fleets, RunningFleet
from support.waiting import until

INTERVAL_US, BURST = 50_000, 2  # the rate of `bill`: 20 per second, of which 2 may start at once
SECOND_US = 1_000_000
MOST_LATE_US: Final = SECOND_US // 2
"""The longest time from the grant of a start to its record, on a busy machine."""
ACCOUNTS: Final = {"first": 60, "second": 30}


@pytest.fixture
def nodes(fleets: Fleets) -> tuple[RunningFleet, RunningFleet]:
    return fleets.node("a", workers=2).start(), fleets.node("b", workers=2).start()


def most_in(times: Sequence[int], window_us: int) -> int:
    """Return the largest number of these times that lie within any period of `window_us` microseconds. The times must
    be sorted.
    """
    return max(sum(start <= at < start + window_us for at in times[first:]) for first, start in enumerate(times))


def test_each_value_of_a_rate_key_keeps_its_rate_and_delays_no_other_task(
    nodes: tuple[RunningFleet, RunningFleet], redis_client: "redis.Redis"
) -> None:
    fleet, _ = nodes
    bills = [
        Call("bill", [name, f"{name}{n}"], queue="default") for name, many in ACCOUNTS.items() for n in range(many)
    ]
    fleet.client.enqueue_many(bills)
    fleet.client.enqueue("note", args=["behind them"], queue="default")
    [passed] = fleet.wait_for("end", label="behind them")
    fleet.wait_for("start", 20, name="bill")
    os.kill(fleet.journal("start", name="bill")[-1].pid, signal.SIGKILL)
    until(lambda: len({line.label for line in fleet.journal("start", name="bill")}) == len(bills), "all bills")
    for name in ACCOUNTS:
        times = sorted(int(line.label) for line in fleet.journal(name))
        window_us = 2 * SECOND_US
        assert most_in(times, window_us) <= BURST + (window_us + MOST_LATE_US) // INTERVAL_US
    last = max(line.at for line in fleet.journal("start", name="bill"))
    assert last - passed.at > 2, "it waited for the tasks with a rate"
    throttled = sum(node.metrics().total("rota_tasks_throttled_total", task="bill") for node in nodes)
    assert len(bills) / 2 < throttled
    assert fleet.metrics().total("rota_task_retries_total") == 0
    assert fleet.books_balance()
    until(lambda: not list(redis_client.scan_iter(f"{{{fleet.namespace}}}:rate:*")), "no key of a rate is left")
