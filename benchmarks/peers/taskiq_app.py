"""taskiq with taskiq-redis: the broker that acknowledges (streams), and schedules kept in Redis."""

import os
from datetime import UTC, datetime
from typing import Any

from taskiq import TaskiqScheduler  # type: ignore[import-not-found]
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker  # type: ignore[import-not-found]

from benchmarks import probe, probe_async

URL = os.environ["BENCH_URL"]
broker = RedisStreamBroker(url=URL)
source = ListRedisScheduleSource(url=URL)
scheduler = TaskiqScheduler(broker=broker, sources=[source])


async def nothing(number: int) -> None:
    """Count one call."""
    probe.nothing(number)


async def mark(label: int) -> None:
    """Write down when it started."""
    probe.mark(label)


TASKS: dict[str, Any] = {
    name: broker.register_task(function, task_name=name)
    for name, function in {
        "nothing": nothing,
        "mark": mark,
        "work": probe_async.work,
        "meet": probe_async.meet,
        "hold": probe_async.hold,
    }.items()
}


async def startup() -> None:
    """Connect, and make the group of consumers, before which no task would be kept."""
    await broker.startup()
    await source.startup()


async def enqueue(task: str, *args: Any) -> None:
    """One task."""
    await TASKS[task].kiq(*args)


async def enqueue_at(task: str, due: float, *args: Any) -> None:
    """One task for later."""
    await TASKS[task].schedule_by_time(source, datetime.fromtimestamp(due, UTC), *args)
