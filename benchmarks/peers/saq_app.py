"""SAQ: one job at a time in each process, results not kept, tried again when it was lost."""

import math
import os
from typing import Any

from saq import Queue  # type: ignore[import-not-found]

from benchmarks import probe, probe_async

OPTIONS: dict[str, Any] = {"ttl": -1, "retries": 3}
queue = Queue.from_url(os.environ["BENCH_URL"], name="bench")


async def nothing(_context: Any, *, number: int) -> None:
    """Count one call."""
    probe.nothing(number)


async def work(_context: Any, *, number: int) -> None:
    """Take 10 ms."""
    await probe_async.work(number)


async def mark(_context: Any, *, number: int) -> None:
    """Write down when it started."""
    probe.mark(number)


async def meet(_context: Any, *, number: int) -> None:
    """Stay until all workers are there."""
    await probe_async.meet(number)


async def hold(_context: Any, *, number: int) -> None:
    """Stay until told."""
    await probe_async.hold(number)


settings = {"queue": queue, "functions": [nothing, work, mark, meet, hold], "concurrency": 1}


async def startup() -> None:
    """Connect."""
    await queue.connect()


async def enqueue(task: str, number: int) -> None:
    """One job."""
    await queue.enqueue(task, number=number, **OPTIONS)


async def enqueue_at(task: str, due: float, number: int) -> None:
    """One job for later. Its schedule knows whole seconds; the next one, so that it is not early."""
    await queue.enqueue(task, number=number, scheduled=math.ceil(due), **OPTIONS)
