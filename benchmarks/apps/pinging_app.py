"""What a worker can reach at most that asks the server once a task: it claims nothing, and only pings before each.

As a program this is one worker. How many tasks it is to do is told it once for all of them: the producer leaves each
worker its share.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import redis

from benchmarks import probe

SHARES = "pinging:shares"
WORKERS = 2  # of the measure that this is the mark of
CALLBACKS: dict[str, Callable[[int], None]] = {name: getattr(probe, name) for name in probe.NAMES}
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def enqueue(task: str, *args: Any) -> None:
    """A share of one task."""
    client.rpush(SHARES, json.dumps([task, [args]]))


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """A share for each worker."""
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
