"""Background work of the master, in coroutines and threads. If a coroutine fails, the failure is logged and does not
affect other work."""

import asyncio
import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from rota.telemetry import log, log_events

_PAUSE_SECONDS: Final = 1.0
_T = TypeVar("_T")


class Background:
    """Work that runs in the background until it ends or is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. If it fails, the failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work that the fleet needs at all times. If the work fails unexpectedly, it is started again."""
        self.start(_kept(work))

    async def cancel(self) -> None:
        """Cancel all work, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.logger().error(log_events.FLEET_CALL_FAILED, exc_info=error)


async def _kept(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - if leases were no longer renewed, every worker would end
            log.logger().error(log_events.FLEET_CALL_FAILED, exc_info=error)
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def beside(work: Callable[[], _T]) -> _T:
    """Run blocking work in a separate thread, and return its result.

    If the calling coroutine is cancelled, the thread continues, but its result is discarded. Raises OSError if no
    thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        # Block all signals in this thread, because only the main thread may receive them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            settle = functools.partial(done.set_result, work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised in the caller
            settle = functools.partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # The event loop may already be closed.
            loop.call_soon_threadsafe(lambda: done.done() or settle())

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return await done
