"""The classic loop: the producer calls RPUSH, and each worker calls BLPOP, decodes the task, finds its function and
calls it.

Tasks are not acknowledged, so if a worker dies, its task is lost. If this module is run as a program, it is one worker.
"""

import json
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import redis

from benchmarks import probe

QUEUE = "classic:queue"
CALLBACKS: dict[str, Callable[[int], None]] = {name: getattr(probe, name) for name in probe.NAMES}
# By default, a read of redis-py 8 times out after 5 s, which would kill a worker that waits in BLPOP.
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def _item(task: str, args: Sequence[Any]) -> str:
    return json.dumps([str(uuid.uuid4()), "bench", task, args])


def enqueue(task: str, *args: Any) -> None:
    """Enqueue with one RPUSH."""
    client.rpush(QUEUE, _item(task, args))


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Enqueue with a pipeline of RPUSHes."""
    with client.pipeline(transaction=False) as pipeline:
        for row in rows:
            pipeline.rpush(QUEUE, _item(task, row))
        pipeline.execute()


def _work() -> None:
    while True:
        reply: Any = client.blpop([QUEUE])
        _, _, name, args = json.loads(reply[1])
        CALLBACKS[name](*args)


if __name__ == "__main__":
    _work()
