"""The classic loop: RPUSH by the producer; BLPOP, decode, look up, call by each worker.

It settles nothing: what a worker holds when it dies is lost. As a program this is one worker.
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
# redis-py 8 gives up a read after 5 s unless told otherwise, which kills a worker that waits in BLPOP.
client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)


def _item(task: str, args: Sequence[Any]) -> str:
    return json.dumps([str(uuid.uuid4()), "bench", task, args])


def enqueue(task: str, *args: Any) -> None:
    """One RPUSH."""
    client.rpush(QUEUE, _item(task, args))


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """One pipeline of RPUSHes."""
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
