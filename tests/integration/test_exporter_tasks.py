"""`/dead.json` and `/task.json`, with which operators inspect tasks."""

from collections.abc import Iterator

import pytest

from rota.client.blocking.client import Client
from rota.protocol.outcome import DeadOutcome
from rota_supervisor.exporter.page_requests import SHOWN
from support.exporting import Exporter, settings_for, small_fleet
from support.masters import ON_ONE_SERVER
from support.protocol import Fleet, one_tier
from support.servers import Server
from support.waiting import until

DEATH = b'{"reason":"retries","error":"ValueError: bad","attempt":1,"owner":"node:8:1","pid":7,"elapsed_seconds":0.5}'


@pytest.fixture
def exporter(server: Server, namespace: str) -> Iterator[Exporter]:
    made = small_fleet(server.url, namespace)
    yield made.start()
    made.close()


def kill(client: Client, fleet: Fleet, queue: str, count: int) -> None:
    """Enqueue this many tasks in a queue, and let them become dead. Their ids are `QUEUE-0`, `QUEUE-1` and so on."""
    owner, serving = fleet.register(), one_tier(queue)
    for number in range(count):
        client.enqueue("work", args=["secret"], queue=queue, id=f"{queue}-{number}")
        [claim] = fleet.turn(owner, serving).claims
        fleet.turn(owner, serving, (claim, DeadOutcome(DEATH)), limit=0)


def test_dead_tasks_are_paged_with_reasons_and_without_arguments(
    exporter: Exporter, client: Client, fleet: Fleet
) -> None:
    kill(client, fleet, "mail", SHOWN + 1)
    kill(client, fleet, "bulk", 1)
    first = exporter.get("/dead.json").json()
    rest = exporter.get(f"/dead.json?cursor={first['cursor']}").json()
    found = [*first["tasks"], *rest["tasks"]]
    assert [task["id"] for task in found] == ["bulk-0", *(f"mail-{number}" for number in range(SHOWN, -1, -1))]
    assert rest["cursor"] is None
    [bulk] = exporter.get("/dead.json?queue=bulk").json()["tasks"]
    assert (bulk["name"], bulk["queue"], bulk["attempt"]) == ("work", "bulk", 1)
    assert (bulk["death"]["reason"], bulk["death"]["error"]) == ("retries", "ValueError: bad")
    assert "secret" not in exporter.get("/dead.json").body
    assert exporter.get("/dead.json?queue=nobody").json() == {"queue": "nobody", "tasks": [], "cursor": None}


def test_a_task_is_shown_with_its_timeline_and_without_arguments(
    exporter: Exporter, client: Client, fleet: Fleet
) -> None:
    kill(client, fleet, "mail", 1)
    answer = exporter.get("/task.json?id=mail-0")
    task = answer.json()
    assert (task["state"], task["queue"], task["death"]["error"]) == ("dead", "mail", "ValueError: bad")
    assert [moment["what"] for moment in task["timeline"]][-1] == "dead"
    assert "secret" not in answer.body
    client.enqueue("work", queue="mail", id="waits")
    assert exporter.get("/task.json?id=waits").json()["state"] == "ready"
    unknown = exporter.get("/task.json?id=nobody")
    assert (unknown.status, unknown.json()["error"][:40]) == (404, "the server knows nothing about this task")


@ON_ONE_SERVER
def test_invalid_requests_are_refused_with_a_message(exporter: Exporter, server: Server, namespace: str) -> None:
    for path in ("/task.json", "/task.json?id=%1b", "/dead.json?cursor=x", "/dead.json?cursor=-1"):
        refused = exporter.get(path)
        assert refused.status == 400, path
        assert refused.json()["error"], path
    silent = Exporter(settings_for(server.url, namespace, "mail", reads_redis=False))
    try:
        refused = silent.start().get("/dead.json")
    finally:
        silent.close()
    assert (refused.status, refused.json()["error"]) == (
        503,
        'this node does not query Redis: [metrics] cluster is "never"',
    )


def test_task_pages_return_an_error_without_redis() -> None:
    exporter = small_fleet("redis://127.0.0.1:1/0", "away").start()
    try:
        until(lambda: exporter.get("/dead.json").status == 503)
        assert exporter.get("/task.json?id=any").json() == {"error": "Redis did not reply in time: try again"}
    finally:
        exporter.close()
