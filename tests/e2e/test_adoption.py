"""A running fleet adopts items from legacy lists. The adopted lists can be changed in the configuration file. The items
start on time, and every view shows them.
"""

import json
import time
from collections.abc import Iterator

import pytest
import redis

from support.fleets import Measure, RunningFleet, running_fleet
from support.servers import Server
from support.waiting import until

ROUNDS = 20


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("adopting")
    adopt = {list_of(folder.name): {"queue": "default"}, set_of(folder.name): {}}
    with running_fleet(server.url, folder.name, folder, pollers=2, adopt=adopt) as running:
        yield running


def list_of(namespace: str) -> str:
    return f"queue:{{{namespace}}}"  # a cluster requires the hash tag of the namespace


def set_of(namespace: str) -> str:
    return f"delayed:{{{namespace}}}"


def push(server: "redis.Redis", fleet: RunningFleet, label: str) -> None:
    server.rpush(list_of(fleet.namespace), json.dumps(["note", [label]]))


def test_an_adopted_item_starts_soon_after_it_was_pushed_or_is_due(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    waits, dues = [], {}
    for number in range(ROUNDS):
        pushed_at = time.time()
        push(redis_client, fleet, f"now-{number}")
        waits.append(fleet.wait_for("start", label=f"now-{number}")[0].at - pushed_at)
        label = f"due-{number}"
        dues[label] = pushed_at + 1.5
        member = json.dumps([f"id-{number}", "default", "note", [label]])
        redis_client.zadd(set_of(fleet.namespace), {member: dues[label]})
    lags = [fleet.wait_for("start", label=label)[0].at - due_at for label, due_at in dues.items()]
    measured("seconds from RPUSH into a legacy list to start, longest", max(waits))
    measured("seconds from due in a classic sorted set to start, longest", max(lags))
    assert min(lags) >= 0
    assert max(*waits, *lags) < 1
    assert fleet.metrics().total("rota_adopted_total") >= 2 * ROUNDS
    assert fleet.metrics().total("rota_task_early_starts_total") == 0
    assert fleet.books_balance()


def test_status_and_metrics_show_the_waiting_items_of_a_source(
    fleet: RunningFleet, redis_client: "redis.Redis"
) -> None:
    later = time.time() + 3600
    redis_client.zadd(set_of(fleet.namespace), {json.dumps(["id", "default", "note", ["later"]]): later})
    until(lambda: fleet.metrics().total("rota_adopt_waiting_items") == 1, "the gauge")
    listed, scheduled = fleet.rota_json("status")["adopts"]
    assert (listed["key"], listed["queue"], listed["waiting"]) == (list_of(fleet.namespace), "default", 0)
    assert (scheduled["type"], scheduled["waiting"]) == ("sorted set", 1)
    assert scheduled["next_due_at"] == pytest.approx(later)
    assert "named by each item" in fleet.rota("status").stdout


def test_a_reload_adds_and_removes_adopted_sources(fleet: RunningFleet, redis_client: "redis.Redis") -> None:
    reload_with(fleet, {})
    push(redis_client, fleet, "nobody's")
    jobs = f"jobs:{{{fleet.namespace}}}"
    more = {jobs: {"queue": "default", "task": "note"}}
    reload_with(fleet, more)
    redis_client.rpush(jobs, json.dumps("an argument"))
    fleet.wait_for("start", label="an argument")
    assert not fleet.journal("start", label="nobody's")
    reload_with(fleet, {**more, list_of(fleet.namespace): {"queue": "default"}})
    fleet.wait_for("start", label="nobody's")


def reload_with(fleet: RunningFleet, adopt: dict[str, dict[str, str]]) -> None:
    """Reload the fleet with these `adopt` settings, and wait until the pollers from before the reload have ended."""
    before = fleet.pids("poller")
    fleet.edit(adopt=adopt)
    fleet.hup()
    until(lambda: not fleet.pids("poller") & before and len(fleet.pids("poller", "ready")) == 2, "other pollers")


def test_an_unusable_source_is_refused_with_instructions(fleet: RunningFleet) -> None:
    fleet.edit(
        adopt={
            "queue:emial": {},
            f"{{{fleet.namespace}}}:queue:default": {"queue": "default"},
            "jobs": {"task": "note"},
        }
    )
    done = fleet.rota("check", "--no-imports")
    assert done.returncode == 78
    assert 'adopt.queue:emial: queue "emial" is in no tier' in done.stderr
    assert "belongs to the fleet itself" in done.stderr
    assert "name no queue: set the queue here" in done.stderr
