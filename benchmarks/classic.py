"""The classic loop, to compare with: RPUSH by the producer; BLPOP, decode, look up, call by each worker.

It settles nothing: what a worker holds when it dies is lost. Run as a program it is one worker, which says
that it is there, waits at the gate, and leaves when its queue has been empty for a second.
"""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis

from benchmarks.clock import wait_until
from benchmarks.noop import nothing

QUEUE = "classic:queue"
GATE = "classic:gate"
PRESENT = "classic:present"
_CALLBACKS: dict[str, Callable[..., None]] = {"nothing": nothing}


def _item(number: int) -> str:
    return json.dumps([str(uuid.uuid4()), "bench", "nothing", [number]])


def enqueue_each(client: "redis.Redis", count: int) -> None:
    """One RPUSH a task."""
    for number in range(count):
        client.rpush(QUEUE, _item(number))


def enqueue_many(client: "redis.Redis", count: int, batch: int) -> None:
    """One RPUSH a batch of tasks."""
    for start in range(0, count, batch):
        client.rpush(QUEUE, *map(_item, range(start, min(start + batch, count))))


def drain_seconds(client: "redis.Redis", url: str, count: int, workers: int) -> float:
    """How long `workers` processes take over `count` waiting tasks, from the moment they may begin."""
    client.delete(QUEUE, GATE, PRESENT)
    enqueue_many(client, count, batch=500)
    argv = [sys.executable, "-m", "benchmarks.classic", url]
    processes = [subprocess.Popen(argv) for _ in range(workers)]
    wait_until(lambda: client.llen(PRESENT) == workers)
    started = time.perf_counter()
    client.rpush(GATE, *["go"] * workers)
    wait_until(lambda: client.llen(QUEUE) == 0)
    seconds = time.perf_counter() - started
    for process in processes:
        process.wait()
    return seconds


def _work(url: str) -> None:
    client = redis.Redis.from_url(url, socket_timeout=None)
    client.rpush(PRESENT, "here")
    client.blpop([GATE])
    while True:
        reply: Any = client.blpop([QUEUE], timeout=1)
        if reply is None:
            return
        _, _, name, args = json.loads(reply[1])
        _CALLBACKS[name](*args)


if __name__ == "__main__":
    _work(sys.argv[1])
