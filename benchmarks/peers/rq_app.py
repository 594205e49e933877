"""RQ, which retries jobs whose process died, and keeps no results. This module is also the settings module of the
workers.

`rq worker-pool -c` imports the settings module before it forks the workers, so that no job has to import modules.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import redis
from rq import Queue, Retry

from benchmarks import probe

REDIS_URL = os.environ["BENCH_URL"]
QUEUES = ["bench"]
OPTIONS: dict[str, Any] = {"result_ttl": 0, "retry": Retry(max=3)}
queue = Queue("bench", connection=redis.Redis.from_url(REDIS_URL))


def enqueue(task: str, *args: Any) -> None:
    """Enqueue one job."""
    queue.enqueue_call(getattr(probe, task), args, **OPTIONS)


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Enqueue many jobs in one pipeline."""
    function = getattr(probe, task)
    queue.enqueue_many([Queue.prepare_data(function, tuple(row), **OPTIONS) for row in rows])


def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one job for a later time."""
    queue.enqueue_at(datetime.fromtimestamp(due, UTC), getattr(probe, task), *args, **OPTIONS)
