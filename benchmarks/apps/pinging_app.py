"""The limit for a worker with one round trip per task. It claims nothing, and only pings before each task.

Run as a program, this module is one worker. The producer sends each worker its share of the tasks in one message.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import redis

from benchmarks import probe

SHARES = "pinging:shares"
WORKERS = 2  # the number of workers in the measure that uses this reference
CALLBACKS: dict[str, Callable[[int], None]] = {name: getattr(probe, name) for name in probe.NAMES}
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def enqueue(task: str, *args: Any) -> None:
    """Send a share of one task."""
    client.rpush(SHARES, json.dumps([task, [args]]))


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Send each worker its share."""
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
