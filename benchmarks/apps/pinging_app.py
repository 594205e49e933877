"""The upper limit for a worker that makes one round trip per task. The worker does not claim tasks from the server, but
sends a PING to the server before each task.

If this module is run as a program, it is one worker. The producer sends each worker its share of the tasks in one
message.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import redis

from benchmarks import probe

SHARES = "pinging:shares"
WORKERS = 2  # the number of workers in the only measurement that uses this app
CALLBACKS: dict[str, Callable[[int], None]] = {name: getattr(probe, name) for name in probe.NAMES}
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def enqueue(task: str, *args: Any) -> None:
    """Send one task to a worker."""
    client.rpush(SHARES, json.dumps([task, [args]]))


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Send each worker its share of these tasks in one message."""
    client.rpush(SHARES, *[json.dumps([task, rows[first::WORKERS]]) for first in range(WORKERS)])


def _work() -> None:
    while True:
        reply: Any = client.blpop([SHARES])
        name, rows = json.loads(reply[1])
        for args in rows:
            client.ping()
            CALLBACKS[name](*args)


if __name__ == "__main__":
    _work()
