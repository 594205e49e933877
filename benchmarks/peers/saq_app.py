"""SAQ: each process runs one job at a time, or as many as a variable in the environment sets. Lost jobs are retried.
Results are not kept.
"""

import math
import os
from collections.abc import Callable
from typing import Any

from saq import Queue  # type: ignore[import-not-found]

from benchmarks import probe_async

OPTIONS: dict[str, Any] = {"ttl": -1, "retries": 3}
queue = Queue.from_url(os.environ["BENCH_URL"], name="bench")


def _job(function: Callable[..., Any]) -> Callable[..., Any]:
    async def job(_context: Any, *, number: int) -> None:
        await function(number)

    return job


settings = {
    "queue": queue,
    "functions": [(name, _job(getattr(probe_async, name))) for name in probe_async.NAMES],
    "concurrency": int(os.environ.get("BENCH_AT_ONCE", "1")),
}


async def startup() -> None:
    """Connect to the server."""
    await queue.connect()


async def enqueue(task: str, number: int) -> None:
    """Enqueue one job."""
    await queue.enqueue(task, number=number, **OPTIONS)


async def enqueue_at(task: str, due: float, number: int) -> None:
    """Enqueue one job for a later time. Due times are rounded up to whole seconds, so that no job starts early."""
    await queue.enqueue(task, number=number, scheduled=math.ceil(due), **OPTIONS)
