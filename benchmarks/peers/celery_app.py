"""Celery. It acknowledges a task only when the task has ended, returns a task to the queue if the process dies, and
prefetches 64 tasks per process. Results are not stored.
"""

import os
from datetime import UTC, datetime
from typing import Any

from celery import Celery  # type: ignore[import-not-found]

from benchmarks import probe

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    task_default_queue="bench",
)
TASKS: dict[str, Any] = {name: app.task(name=name)(getattr(probe, name)) for name in probe.NAMES}


def enqueue(task: str, *args: Any) -> None:
    """Enqueue one task."""
    TASKS[task].apply_async(args)


def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one task for a later time. A worker holds the task until then."""
    TASKS[task].apply_async(args, eta=datetime.fromtimestamp(due, UTC))
