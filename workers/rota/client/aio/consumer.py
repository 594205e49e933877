"""The consumer for asyncio, which runs a blocking consumer in threads.

A thread can renew the lease in time even if the event loop of the program is blocked. If the event loop renewed it, a
blocked loop could let the lease expire, and a task could run twice.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Self, TypeVar

from rota.client.blocking.driver import Driver
from rota.client.consumer import ClaimedTask, Consumer, ConsumerOptions, LeasedTask
from rota.durations import Duration
from rota.errors import Dead
from rota.protocol.outcome import Outcome, Release

__all__ = ["AsyncConsumer", "AsyncLeasedTask"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class AsyncLeasedTask(ClaimedTask):
    """A task that this process holds until it is settled or the lease is lost.

    It works like LeasedTask, but its methods are coroutines, and it is used with `async with`. If the await of a
    settlement is cancelled, the settlement continues in its thread.
    """

    @classmethod
    def of(cls, task: LeasedTask) -> Self:
        """Return a leased task with methods that can be awaited."""
        return cls(*(getattr(task, each.name) for each in fields(task)))

    async def done(self, result: object = None) -> None:
        """Report the task as done, with its result. Raises the errors of `LeasedTask.done`."""
        await self._settle(self._when_done(result))

    async def retry(self, delay: Duration | None = None) -> None:
        """Report the attempt as failed, so that the task is retried. Raises the errors of `LeasedTask.retry`."""
        await self._settle(self._when_retried(delay))

    async def dead(self, why: str = "") -> None:
        """Report the task as dead, without another attempt. Raises the errors of `LeasedTask.done`."""
        await self._settle(self._when_failed(Dead(why)))

    async def release(self) -> None:
        """Return the task to the head of its lane. This does not count as a failure. Raises the errors of
        `LeasedTask.done`."""
        await self._settle(Release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Settle the task by the rules of `LeasedTask.__exit__`, unless the block has already done so.

        `asyncio.CancelledError` releases the task and is not suppressed.
        """
        outcome = self._at_exit(error)
        if outcome is None:
            return False
        await self._settle(outcome)
        return not isinstance(outcome, Release)

    async def _settle(self, outcome: Outcome) -> None:
        settlement = self._settlement(outcome)
        await _in_thread(lambda: self._hold.settle(settlement))


class AsyncConsumer(AsyncIterator[AsyncLeasedTask]):
    """An asynchronous iterator over leased tasks of one or more queues, made by `AsyncClient.consumer`. See `Consumer`.

    `async with` registers the consumer. At the end of the block, the tasks that the consumer holds return to their
    lanes. Iteration waits for a task, and ends after `stop`. If an await is cancelled while it claims a task, the next
    await receives that task.
    """

    def __init__(self, driver: Driver, options: ConsumerOptions) -> None:
        self._driver = driver
        self._options = options
        self._consumer: Consumer | None = None
        self._coming: asyncio.Future[LeasedTask | None] | None = None

    async def __aenter__(self) -> Self:
        """Register the consumer. Raises Unavailable or Uncertain."""
        registering = _in_thread(self._register)
        try:
            await asyncio.shield(registering)
        # The `async with` block will not run, so the registration is ended here. Nothing else would end it or stop the
        # renewal of its lease.
        except asyncio.CancelledError:
            registering.add_done_callback(self._leave)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def owner(self) -> str:
        """The name under which the consumer holds tasks now: see `Consumer.owner`."""
        return self._entered.owner

    async def __anext__(self) -> AsyncLeasedTask:
        """Wait for a task and return it.

        Raises the errors of `Consumer.__next__`, and StopAsyncIteration after `stop` or `aclose`.
        """
        consumer = self._entered
        if self._coming is None:
            self._coming = _in_thread(lambda: next(consumer, None))
        try:
            task = await asyncio.shield(self._coming)
        finally:
            if self._coming.done():
                self._coming = None
        if task is None:
            raise StopAsyncIteration
        return AsyncLeasedTask.of(task)

    def stop(self) -> None:
        """End iteration. The consumer keeps its tasks, which can still be settled."""
        self._entered.stop()

    async def aclose(self) -> None:
        """Stop, and return held tasks to their lanes. This may be called more than once."""
        await _in_thread(self._close)

    def _register(self) -> None:
        self._consumer = self._driver.consumer(self._options)

    def _leave(self, registering: "asyncio.Future[None]") -> None:
        # Called only because asyncio would otherwise log that the exception was never retrieved.
        registering.exception()
        _in_thread(self._close)

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._driver.close()

    @property
    def _entered(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("enter the consumer first: `async with client.consumer(...) as tasks`")
        return self._consumer


def _in_thread(function: Callable[[], T]) -> "asyncio.Future[T]":
    """Call the function in a new thread, and return a future for its result.

    Unlike the threads of asyncio, this thread does not delay the end of the program.
    """
    ended: Future[T] = Future()
    ended.set_running_or_notify_cancel()  # After this call, the thread continues even if the await is cancelled.

    def run() -> None:
        try:
            ended.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            ended.set_exception(error)

    threading.Thread(target=run, name="rota-consumer", daemon=True).start()
    return asyncio.wrap_future(ended)
