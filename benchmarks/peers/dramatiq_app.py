"""Dramatiq: each process has one thread. How many tasks a worker prefetches is set by its environment."""

import os
import time
from typing import Any

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]

from benchmarks import probe

broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)
TASKS: dict[str, Any] = {
    name: dramatiq.actor(getattr(probe, name), actor_name=name, queue_name="bench") for name in probe.NAMES
}


def enqueue(task: str, *args: Any) -> None:
    """Enqueue one task."""
    TASKS[task].send(*args)


def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one task for a later time. A worker holds the task until then. Delays are rounded up to milliseconds."""
    TASKS[task].send_with_options(args=args, delay=max(0, -int(-(due - time.time()) * 1000 // 1)))
