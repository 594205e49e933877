"""Dramatiq: processes of one thread each; what they fetch ahead is set in the environment of its workers."""

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
    """One task."""
    TASKS[task].send(*args)


def enqueue_at(task: str, due: float, *args: Any) -> None:
    """One task for later; a worker holds it until then. Its delays are whole milliseconds, rounded up here."""
    TASKS[task].send_with_options(args=args, delay=max(0, -int(-(due - time.time()) * 1000 // 1)))
