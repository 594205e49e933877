"""Coroutines beside the master's loop. One that fails is told in the log and stops nothing else."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rota.telemetry import events, log


class Background:
    """Keeps what runs until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def cancel(self) -> None:
        """End everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.logger().error(events.FLEET_CALL_FAILED, exc_info=error)
