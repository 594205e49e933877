"""A client with the permissions of a producer writes malformed entries directly into the queues of a fleet. No worker
dies because of them, and all tasks of other clients run. If the fleet requires signatures, no malformed entry runs.
"""

import itertools
import json
import time
from collections.abc import Iterator

import pytest
import redis

from rota.protocol.keys import Keys
from rota_supervisor.acl_roles import AclRole
from support.acl_users import as_user
from support.fleets import UNSIGNED, Fleets, RunningFleet
from support.fuzzing import bodies, ids
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

ENTRIES = 50_000  # with and without signatures, so 100,000 in all
BATCH = 1_000
POOLS = {"plain": {"workers": 1}, "many": {"workers": 1, "concurrency": 8}}


def written(fleet: RunningFleet, seed: int) -> Iterator[int]:
    """Write malformed entries in batches, with the permissions of a producer. After each batch, yields the number of
    entries written so far.
    """
    keys = Keys(fleet.namespace)
    lane = keys.ready_lane("default")
    ways = itertools.cycle(range(4))
    entries = zip(ids(seed, ENTRIES), bodies(seed, ENTRIES), ways, strict=False)  # `ways` is endless
    with redis.Redis.from_url(as_user(fleet.url, AclRole.PRODUCER)) as producer:
        for number in range(BATCH, ENTRIES + 1, BATCH):
            with producer.pipeline(transaction=False) as pipeline:
                for task_id, body, way in itertools.islice(entries, BATCH):
                    match way:
                        case 0:
                            pipeline.rpush(lane, body)
                        case 1:
                            pipeline.zadd(keys.delayed, {body: time.time()})
                        case 2:
                            pipeline.hset(keys.tasks, task_id, body).rpush(lane, task_id)
                        case _:
                            pipeline.hset(keys.tasks, task_id, body).zadd(keys.delayed, {task_id: time.time()})
                pipeline.execute()
            yield number


def unplaced(fleet: RunningFleet) -> list[str]:
    """Return the ids of the live tasks that are in no lane, list or set, according to the audit."""
    ids: list[str] = json.loads(fleet.rota("audit", "--json").stdout)["unplaced"]
    return ids


def wait_until_empty(fleet: RunningFleet) -> None:
    until(lambda: fleet.metrics().total("rota_queue_ready_tasks", queue="default") == 0, "an empty lane", 120)


@pytest.mark.parametrize("is_signed", [False, True])
def test_no_fuzzed_entry_of_a_producer_ends_a_worker_or_loses_a_task_of_others(fleets: Fleets, is_signed: bool) -> None:
    signing = {} if is_signed else {"signing": UNSIGNED}
    fleet = fleets.start(pools=POOLS, log={"level": "error"}, **signing)
    workers = fleet.workers()
    tasks = {fleet.client.enqueue("note", args=["theirs"], queue="default").id for _ in written(fleet, 281129)}
    fleet.wait_for("end", len(tasks), label="theirs")
    # The entries with an invalid id are dead with another id, so their bodies are in no lane until they are healed.
    wait_until_empty(fleet)
    assert fleet.rota("audit", "--heal").returncode == 1  # the producer counted nothing, so the totals stay wrong
    until(lambda: not unplaced(fleet), "every body that the producer wrote has a place")
    wait_until_empty(fleet)
    assert fleet.workers() == workers
    assert {line.id for line in fleet.journal("end", label="theirs")} == tasks
    if is_signed:
        assert {line.label for line in fleet.journal("start")} == {"theirs"}
