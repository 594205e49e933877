"""arq: up to ten jobs at once in each process, as by default; results not kept."""

import os
from datetime import UTC, datetime
from typing import Any, ClassVar

from arq.connections import ArqRedis, RedisSettings, create_pool  # type: ignore[import-not-found]
from arq.worker import func  # type: ignore[import-not-found]

from benchmarks import probe, probe_async

SETTINGS = RedisSettings.from_dsn(os.environ["BENCH_URL"])


async def nothing(_context: Any, number: int) -> None:
    """Count one call."""
    probe.nothing(number)


async def work(_context: Any, number: int) -> None:
    """Take 10 ms."""
    await probe_async.work(number)


async def mark(_context: Any, label: int) -> None:
    """Write down when it started."""
    probe.mark(label)


async def meet(_context: Any, label: int) -> None:
    """Stay until all workers are there."""
    await probe_async.meet(label)


async def hold(_context: Any, label: int) -> None:
    """Stay until told."""
    await probe_async.hold(label)


class WorkerSettings:
    """What `arq` reads."""

    functions: ClassVar[list[Any]] = [func(function, keep_result=0) for function in (nothing, work, mark, meet, hold)]
    redis_settings = SETTINGS


_pool: dict[str, ArqRedis] = {}


async def startup() -> None:
    """Connect."""
    _pool["pool"] = await create_pool(SETTINGS)


async def enqueue(task: str, *args: Any) -> None:
    """One job."""
    await _pool["pool"].enqueue_job(task, *args)


async def enqueue_at(task: str, due: float, *args: Any) -> None:
    """One job for later."""
    await _pool["pool"].enqueue_job(task, *args, _defer_until=datetime.fromtimestamp(due, UTC))
