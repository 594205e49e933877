"""A fleet finds tasks whose entries another program removed from their lanes, and items that were pushed without the
client.
"""

import json
import statistics
import time
import uuid
from collections.abc import Iterator

import pytest
import redis

from rota.poller.rounds import SWEEP_SECONDS
from rota.protocol.keys import Keys
from support.fleets import UNSIGNED, Measure, RunningFleet
from support.servers import Server
from support.waiting import until

LEASE_SECONDS = 3  # a poller scans the keys once in this time
LOST = "lost-before-the-start"
PUSHES = 4  # the number of items that are pushed in each way
DECADE_SECONDS = 4000 * 86_400


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    """Yield a fleet with one lost task. The task was enqueued before the fleet started, but its entry was removed from
    the lane.
    """
    folder = tmp_path_factory.mktemp("untold")
    with redis.Redis.from_url(server.url) as plain:
        lease = {"seconds": LEASE_SECONDS, "renew_seconds": 1}
        made = RunningFleet(server.url, folder.name, folder, lease=lease, signing=UNSIGNED)
        try:
            made.client.enqueue("note", args=[LOST], queue="default", id=LOST)
            assert plain.lpop(Keys(folder.name).ready_lane("default"))
            yield made.start()
        finally:
            made.close()


def item(task_id: str, label: str, queue: str = "default", **fifth: object) -> str:
    return json.dumps([task_id, queue, "note", [label], *([fifth] if fifth else [])])


def row_of(fleet: RunningFleet, queue: str) -> dict[str, object]:
    return next((row for row in fleet.rota_json("queue", "ls") if row["queue"] == queue), {})


def is_tracking(server: "redis.Redis") -> bool:
    """Whether the server tracks keys for at least one client."""
    return int(server.info("clients")["tracking_clients"]) > 0 and int(server.info("stats")["tracking_total_keys"]) > 0


def test_a_bare_push_wakes_an_idle_fleet_before_the_next_sweep(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    keys, late = Keys(fleet.namespace), []
    for number in range(2 * PUSHES):
        label = f"heard-{number}"
        until(lambda: is_tracking(redis_client), "tracked keys")
        pushed_at = time.time()
        if number < PUSHES:
            redis_client.rpush(keys.ready_lane("default"), item(label, label))
        else:
            redis_client.zadd(keys.delayed, {item(label, label): pushed_at})
        late.append(fleet.wait_for("start", label=label)[0].at - pushed_at)
    measured("seconds from a bare push to its start, in an idle fleet, longest", max(late))
    assert statistics.median(late) < SWEEP_SECONDS / 4, "sweeps alone take half their interval"


def test_an_unplaced_task_is_in_the_metrics_and_the_log(fleet: RunningFleet) -> None:
    until(lambda: fleet.metrics().total("rota_audit_unplaced_tasks") == 1, "the walk of a poller")
    _, page = fleet.get("/status.json")
    assert json.loads(page)["headlines"][0]["text"].startswith("1 live task in no lane, so no worker will run it")
    assert "1 live task in no lane" in fleet.rota("top", "--once").stdout
    (line,) = fleet.log("audit.unplaced")
    assert (line["count"], line["task_ids"]) == (1, [LOST])
    healed = fleet.rota("audit", "--heal")
    assert (healed.returncode, "put 1 task back" in healed.stderr) == (0, True)
    fleet.wait_for("end", label=LOST)


def test_audit_heal_runs_a_task_removed_from_its_lane_once(fleet: RunningFleet, redis_client: "redis.Redis") -> None:
    fleet.rota("queue", "pause", "default")
    ids = [fleet.client.enqueue("note", args=[f"l{n}"], queue="default").id for n in range(3)]
    assert redis_client.lpop(Keys(fleet.namespace).ready_lane("default"))
    fleet.rota("queue", "resume", "default")
    fleet.wait_for("end", label="l1")
    fleet.wait_for("end", label="l2")

    found = fleet.rota("audit", "--json")
    assert found.returncode == 1
    books = json.loads(found.stdout)
    assert (set(books["unplaced"]) - {LOST}, books["missing"]) == ({ids[0]}, 0)
    assert ids[0] in found.stderr

    assert fleet.rota("audit", "--heal").returncode == 0
    fleet.wait_for("end", label="l0")
    until(fleet.books_balance)
    assert [line.id for line in fleet.journal("start") if line.id in ids].count(ids[0]) == 1


def test_a_lane_of_an_unserved_queue_is_shown_with_its_tasks(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    keys = Keys(fleet.namespace)
    pushed_at = time.monotonic()
    redis_client.rpush(keys.ready_lane("emial"), item("e1", "emial", "emial"))
    row = until(lambda: row_of(fleet, "emial"), "the queue is listed")
    measured("seconds from RPUSH to a queue that nobody serves until it is listed", time.monotonic() - pushed_at)
    assert (row["ready"], row["served"]) == (1, False)
    shown = fleet.metrics()
    assert shown.total("rota_queue_ready_tasks", queue="emial") == 1
    assert shown.total("rota_queue_served", queue="emial") == 0
    redis_client.delete(keys.ready_lane("emial"))


def test_a_bare_scheduled_item_is_soon_known_by_its_id(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    waits = []
    for _ in range(3):
        task_id = str(uuid.uuid4())
        scheduled_at = time.monotonic()
        redis_client.zadd(Keys(fleet.namespace).delayed, {item(task_id, "bare"): time.time() + 600})
        assert sum(row["scheduled"] for row in fleet.rota_json("queue", "ls")) == 1
        until(lambda: fleet.client.status(task_id).state == "scheduled", "the task is known by its id")  # noqa: B023 - called here
        waits.append(time.monotonic() - scheduled_at)
        assert fleet.rota_json("task", "show", task_id)["name"] == "note"
        assert row_of(fleet, "default")["scheduled"] == 1
        assert fleet.rota("task", "cancel", task_id).returncode == 0
    measured("seconds from a bare ZADD until it is known by its id, longest", max(waits))
    assert fleet.books_balance()


def test_items_with_impossible_times_or_options_are_dead_with_the_reason(
    fleet: RunningFleet, redis_client: "redis.Redis"
) -> None:
    keys = Keys(fleet.namespace)
    milliseconds = (time.time() + 60) * 1000
    redis_client.zadd(keys.delayed, {item("far", "far"): milliseconds})
    redis_client.rpush(keys.ready_lane("default"), item("odd", "odd", options={"retires": 3}))
    redis_client.rpush(keys.ready_lane("default"), item("own", "own", options={"retries": 3}, trace="mine"))
    until(lambda: {each["id"] for each in fleet.rota_json("dead", "ls")} == {"far", "odd"}, "both dead")
    dead = {each["id"]: each["death"] for each in fleet.rota_json("dead", "ls")}
    assert dead["far"]["reason"] == "too_far_ahead"
    assert "milliseconds?" in dead["far"]["error"]
    assert dead["odd"]["reason"] == "options"
    assert "'retires'" in dead["odd"]["error"]
    fleet.wait_for("end", label="own")
    refused = fleet.rota("task", "enqueue", "note", "x", "--queue", "default", "--delay", str(DECADE_SECONDS))
    assert (refused.returncode, "milliseconds instead of seconds?" in refused.stderr) == (2, True)
    until(lambda: fleet.metrics().total("rota_tasks_dead_total", reason="too_far_ahead") == 1)
    assert fleet.books_balance()
