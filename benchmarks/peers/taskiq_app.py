"""taskiq with taskiq-redis. It uses the broker based on streams, which has acknowledgements, and stores schedules in
Redis.
"""

import os
from datetime import UTC, datetime
from typing import Any

from taskiq import TaskiqScheduler  # type: ignore[import-not-found]
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker  # type: ignore[import-not-found]

from benchmarks import probe_async

URL = os.environ["BENCH_URL"]
broker = RedisStreamBroker(url=URL)
source = ListRedisScheduleSource(url=URL)
scheduler = TaskiqScheduler(broker=broker, sources=[source])
TASKS: dict[str, Any] = {
    name: broker.register_task(getattr(probe_async, name), task_name=name) for name in probe_async.NAMES
}


async def startup() -> None:
    """Connect, and create the consumer group. Tasks that are sent before the group exists would be lost."""
    await broker.startup()
    await source.startup()


async def enqueue(task: str, *args: Any) -> None:
    """Enqueue one task."""
    await TASKS[task].kiq(*args)


async def enqueue_at(task: str, due: float, *args: Any) -> None:
    """Enqueue one task for a later time."""
    await TASKS[task].schedule_by_time(source, datetime.fromtimestamp(due, UTC), *args)
