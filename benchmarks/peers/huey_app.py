"""Huey: Redis storage with blocking pops, without results."""

import os
from datetime import datetime
from typing import Any

from huey import RedisHuey  # type: ignore[import-not-found]

from benchmarks import probe

huey = RedisHuey("bench", url=os.environ["BENCH_URL"], results=False)
TASKS: dict[str, Any] = {name: huey.task(name=name)(getattr(probe, name)) for name in probe.NAMES}


def enqueue(task: str, *args: Any) -> None:
    """Enqueue one task."""
    TASKS[task](*args)


def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one task for a later time."""
    TASKS[task].schedule(args=args, eta=datetime.fromtimestamp(due).astimezone())
