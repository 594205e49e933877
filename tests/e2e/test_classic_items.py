"""A running fleet executes items that programs in other languages push with plain Redis commands."""

import json
import statistics
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
import redis

from rota.protocol.keys import Keys
from support.fleets import UNSIGNED, Measure, RunningFleet, running_fleet
from support.servers import Server

ROUNDS = 5
# Within this time, a sweep of a poller finds an item that was pushed without a doorbell token. There is a sweep every
# second.
DELAY_SECONDS = 1.2


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("classic")
    with running_fleet(server.url, folder.name, folder, workers=4, signing=UNSIGNED) as running:
        yield running


def classic(label: str) -> str:
    return json.dumps([str(uuid.uuid4()), "default", "note", [label]])


def short(label: str) -> str:
    return json.dumps(["note", [label]])


@pytest.mark.parametrize("form", [classic, short])
def test_a_pushed_item_is_executed_within_a_second(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure, form: Callable[[str], str]
) -> None:
    waits = []
    for number in range(ROUNDS):
        label = f"{form.__name__}{number}"
        pushed_at = time.time()
        redis_client.rpush(Keys(fleet.namespace).ready_lane("default"), form(label))
        [start] = fleet.wait_for("start", label=label)
        waits.append(start.at - pushed_at)
    measured("seconds from RPUSH to start, longest", max(waits))
    assert statistics.median(waits) < 1


def test_the_id_of_a_pushed_item_is_the_tasks_id(fleet: RunningFleet, redis_client: "redis.Redis") -> None:
    task_id = str(uuid.uuid4())
    item = json.dumps([task_id, "default", "note", ["named"]])
    redis_client.rpush(Keys(fleet.namespace).ready_lane("default"), item)
    [start] = fleet.wait_for("start", label="named")
    assert start.id == task_id


def test_a_delayed_item_is_executed_on_time(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    due_times = {}
    for number in range(ROUNDS):
        label = f"delayed{number}"
        due_times[label] = round(time.time() + DELAY_SECONDS + number * 0.1, 3)
        redis_client.zadd(Keys(fleet.namespace).delayed, {classic(label): due_times[label]})
    starts = [fleet.wait_for("start", label=label)[0] for label in due_times]
    lags = [start.at - due_times[start.label] for start in starts]
    assert min(lags) >= 0
    measured("seconds from due to start of a ZADD, longest", max(lags))
    assert statistics.median(lags) < 1
    assert [start.due_at for start in starts] == pytest.approx(list(due_times.values()), abs=0.001)


def test_no_pushed_item_is_executed_twice(fleet: RunningFleet) -> None:
    starts = [line.id for line in fleet.journal("start")]
    assert len(starts) == len(set(starts))
    assert fleet.books_balance()
