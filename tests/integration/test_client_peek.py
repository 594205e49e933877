"""`Client.peek`, which returns typed tasks of queues, and reads no more tasks than requested."""

from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.client.blocking.client import Client
from rota.client.queues import MOST_SEARCHED, WantedTasks, find
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DeadOutcome
from rota.protocol.scripts import follow
from rota.protocol.store import BATCH
from rota.protocol.task_states import State
from support.protocol import Fleet, one_tier

SERVING = one_tier("q", "r")
DEATH = b'{"reason":"retries","error":"ValueError: bad","attempt":1,"owner":"node:8:1","pid":7,"elapsed_seconds":0.5}'


def push(fleet: Fleet, count: int, name: str, queue: str = "q") -> None:
    body = f'["x","{queue}","{name}",[]]'.encode()
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        fleet.enqueue(*(NewTask(f"{name}{n}", queue, body) for n in numbers))


def test_peek_returns_tasks_of_each_state(client: Client, fleet: Fleet) -> None:
    client.enqueue("work", queue="q", id="late", delay=600)
    for task_id in ("dies", "runs", "waits"):
        client.enqueue("work", queue="q", id=task_id)
    owner = fleet.register()
    [claim] = fleet.turn(owner, SERVING).claims
    fleet.turn(owner, SERVING, (claim, DeadOutcome(DEATH)), limit=0)
    [claim] = fleet.turn(owner, SERVING).claims
    fleet.run(fleet.store.store_progress([(owner, claim.entry.text, b"1 4 1 rows")]))

    [waits] = client.peek("q")
    assert (waits.id, waits.state, waits.name, waits.attempt) == ("waits", State.READY, "work", 1)
    assert waits.since is not None
    assert waits.age_seconds is not None
    assert datetime.now(UTC) - waits.since < timedelta(minutes=5)
    [late] = client.peek(state="scheduled")
    assert late.due_in_seconds is not None
    assert 500 < late.due_in_seconds <= 600
    [runs] = client.peek(state="running")
    assert runs.progress is not None
    assert (runs.owner, runs.progress.done, runs.progress.note) == (owner, 1, "rows")
    [dies] = client.peek(state="dead")
    assert dies.death is not None
    assert (dies.attempt, dies.death.error, dies.death.node) == (1, "ValueError: bad", "node")
    assert isinstance(dies, rota.QueuedTask)


def test_peek_without_a_queue_reads_all_queues_up_to_the_limit(client: Client, fleet: Fleet) -> None:
    push(fleet, 3, "first", "q")
    push(fleet, 3, "second", "r")
    assert [task.id for task in client.peek(limit=4)] == ["first0", "first1", "first2", "second0"]
    assert [task.id for task in client.peek(task="second", limit=2)] == ["second0", "second1"]
    assert client.peek("nobody") == client.peek(state="running") == client.peek("q", "dead") == []


def test_peek_searches_a_bounded_number_of_tasks_for_a_rare_one(client: Client, fleet: Fleet) -> None:
    push(fleet, MOST_SEARCHED + 2 * BATCH, "many")
    push(fleet, 1, "few")
    found = follow(fleet.run, find(fleet.store, WantedTasks(State.READY, "q", "few")))
    assert (found.tasks, found.searched, found.more) == ([], MOST_SEARCHED, True)
    assert client.peek("q", task="few") == []
    found = follow(fleet.run, find(fleet.store, WantedTasks(State.READY, "q", limit=BATCH + 1)))
    assert (len(found.tasks), found.searched, found.more) == (BATCH + 1, BATCH + 1, True)


def test_invalid_requests_are_refused_with_a_message(client: Client) -> None:
    with pytest.raises(ValueError, match='state must be "ready", "scheduled", "running" or "dead", got'):
        client.peek("q", "done")
    with pytest.raises(rota.InvalidName, match="may not end in"):
        client.peek("q-delayed")
    with pytest.raises(ValueError, match="limit must be at least 1"):
        client.peek("q", limit=0)
    with pytest.raises(TypeError, match="limit must be a whole number"):
        client.peek("q", limit=2.5)  # type: ignore[arg-type]
    with pytest.raises(rota.InvalidName, match="task name"):
        client.peek("q", task="a b")
