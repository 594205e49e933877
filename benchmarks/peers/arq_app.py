"""arq: each process runs ten jobs at once (the default), or as many as a variable in the environment sets. Results are
not kept.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

from arq.connections import ArqRedis, RedisSettings, create_pool  # type: ignore[import-not-found]
from arq.worker import func  # type: ignore[import-not-found]

from benchmarks import probe_async

SETTINGS = RedisSettings.from_dsn(os.environ["BENCH_URL"])


def _job(function: Callable[..., Any]) -> Callable[..., Any]:
    async def job(_context: Any, number: int) -> None:
        await function(number)

    return job


class WorkerSettings:
    """The settings that the command `arq` reads."""

    functions: ClassVar[list[Any]] = [
        func(_job(getattr(probe_async, name)), name=name, keep_result=0) for name in probe_async.NAMES
    ]
    redis_settings = SETTINGS
    max_jobs = int(os.environ.get("BENCH_AT_ONCE", "10"))
    poll_delay = float(os.environ.get("BENCH_POLL_SECONDS", "0.5"))


_pool: dict[str, ArqRedis] = {}


async def startup() -> None:
    """Connect to the server."""
    _pool["pool"] = await create_pool(SETTINGS)


async def enqueue(task: str, *args: Any) -> None:
    """Enqueue one job."""
    await _pool["pool"].enqueue_job(task, *args)


async def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one job for a later time."""
    await _pool["pool"].enqueue_job(task, *args, _defer_until=datetime.fromtimestamp(due, UTC))
