"""An asyncio event loop without descriptors, threads, or a clock of its own. The master's coroutines run on it
unchanged.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Loop:
    """An event loop that runs due callbacks when `turn` is called. It has those methods of an asyncio loop that the
    master's coroutines use.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._planned = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.errors: list[dict[str, Any]] = []
        self._itself = cast("asyncio.AbstractEventLoop", self)

    @property
    def next_at(self) -> float | None:
        """The time of the next callback, by the loop's clock, or None if no callback is planned."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        if self._ready:
            return self._clock()
        return self._timers[0][0] if self._timers else None

    def turn(self) -> None:
        """Run all callbacks that are ready or due."""
        events._set_running_loop(self._itself)
        try:
            while self._take_due():
                while self._ready:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        handle._run()
        finally:
            events._set_running_loop(None)

    def run(self, action: Callable[[], None]) -> None:
        """Call a function as if from within this loop, so that the function can start asyncio tasks."""
        events._set_running_loop(self._itself)
        try:
            action()
        finally:
            events._set_running_loop(None)

    def _take_due(self) -> bool:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heappop(self._timers)[2])
        return bool(self._ready)

    def close(self) -> None:
        """Cancel every asyncio task, and let it run to its end. The loop must not be used afterwards."""
        for task in list(self._tasks):
            task.cancel()
        self.turn()

    # The methods of an event loop that asyncio itself calls

    def time(self) -> float:
        return self._clock()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._itself, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._clock() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._itself, context)
        self._planned += 1
        heappush(self._timers, (when, self._planned, handle))
        return handle

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        pass  # a cancelled handle stays in the heap until it is due, and is skipped then

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._itself)

    def create_task(self, coro: Coroutine[Any, Any, T], **_: Any) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self._itself)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)
