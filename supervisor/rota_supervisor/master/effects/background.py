"""Work beside the master's loop: coroutines, whose failure is logged and stops nothing else, and threads."""

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
    """Keeps what runs until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what the fleet cannot do without: after a failure that nobody foresaw it is begun anew."""
        self.start(_kept(work))

    async def cancel(self) -> None:
        """End everything."""
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
        except Exception as error:  # noqa: BLE001 - leases that nobody renews any more end every worker
            log.logger().error(log_events.FLEET_CALL_FAILED, exc_info=error)
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def beside(work: Callable[[], _T]) -> _T:
    """Do blocking work in a thread of its own. It may outlive whoever awaits it, and then ends unheard.

    Raises OSError when there can be no further thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        try:
            settle = functools.partial(done.set_result, work())
        except BaseException as error:  # noqa: BLE001 - it is raised for whoever awaits it, whatever it is
            settle = functools.partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: done.done() or settle())

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return await done
