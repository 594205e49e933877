"""The outcomes that a fleet reports agree with the journal that the tasks write, even if workers are killed."""

import json
import os
import signal

import redis

from rota import Call
from rota.protocol.keys import Keys
from support.fleets import Fleets
from support.waiting import until

TASKS = 400
KILLS = 5


def test_the_status_of_ended_tasks_agrees_with_the_journal_despite_kills(
    fleets: Fleets, redis_client: "redis.Redis"
) -> None:
    fleet = fleets.start(ended={"keep": 2 * TASKS})
    calls = [Call("answer", args=[str(number), number % 2 == 1], queue="default") for number in range(TASKS)]
    ids = [handle.id for handle in fleet.client.enqueue_many(calls)]
    for number in range(1, KILLS + 1):
        ended = number * TASKS // (KILLS + 2)
        last = until(lambda ended=ended: fleet.journal("start")[ended:], "some more tasks")[-1]  # type: ignore[misc]
        os.kill(last.pid, signal.SIGKILL)
    until(lambda: not redis_client.hlen(Keys(fleet.namespace).tasks) - TASKS // 2, "the end of all, or their death")
    node = fleet.status()["node"]
    for number, task_id in enumerate(ids):
        status = fleet.client.status(task_id)
        starts = fleet.journal("start", id=task_id)
        assert (status.name, status.attempt) == ("answer", status.crashes + 1)
        # A worker may die after it has claimed a task and before it has reported the start of the task.
        assert len(starts) <= status.attempt
        assert (status.node, status.pid) == (node, starts[-1].pid)
        assert status.ended_at is not None
        if number % 2:
            assert (status.state, status.failures) == ("dead", 1)
            assert status.lag_seconds is not None
        else:
            assert (status.state, status.has_result) == ("done", True)
            assert status.started_at is not None
            assert status.run_seconds is not None
            assert status.run_seconds >= 0.002
            stored = redis_client.get(Keys(fleet.namespace).result(task_id))
            assert json.loads(stored) == {"label": str(number)}  # type: ignore[arg-type]  # redis-py: may be awaitable
    fleet.edit(ended={"keep": 0})
    assert fleet.rota("reload").returncode == 0
    until(lambda: not redis_client.exists(Keys(fleet.namespace).ends), "the end of the memory")
    assert fleet.books_balance()
