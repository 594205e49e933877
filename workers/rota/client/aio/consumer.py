"""The consumer for asyncio. What it does is done by the one that blocks, in threads: so a lease is renewed on time, and
no task runs twice, also when the program's event loop is held up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Self, TypeVar

from rota.client.blocking.driver import Driver
from rota.client.consumer import ClaimedTask, Consumer, LeasedTask, Terms
from rota.durations import Duration
from rota.errors import Dead
from rota.protocol.outcome import Outcome, Release

__all__ = ["AsyncConsumer", "AsyncLeasedTask"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class AsyncLeasedTask(ClaimedTask):
    """A task that this process holds, until it is settled or the lease is lost: as LeasedTask, but that it is settled
    by awaiting, and a context by `async with`. A settlement whose await is cancelled goes on by itself."""

    @classmethod
    def of(cls, task: LeasedTask) -> Self:
        """The same task."""
        return cls(*(getattr(task, each.name) for each in fields(task)))

    async def done(self, result: object = None) -> None:
        """End it: it is done. Raises as `LeasedTask.done`."""
        await self._settle(self._when_done(result))

    async def retry(self, delay: Duration | None = None) -> None:
        """End this attempt as failed. Raises as `LeasedTask.retry`."""
        await self._settle(self._when_retried(delay))

    async def dead(self, why: str = "") -> None:
        """End it as dead, without another attempt. Raises as `done`."""
        await self._settle(self._when_failed(Dead(why)))

    async def release(self) -> None:
        """Give it back to the head of its lane; that counts as no failure. Raises as `done`."""
        await self._settle(Release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Settle the task, unless the block has done so: as `LeasedTask.__exit__`. `asyncio.CancelledError` releases
        it, and goes on its way."""
        outcome = self._at_exit(error)
        if outcome is None:
            return False
        await self._settle(outcome)
        return not isinstance(outcome, Release)

    async def _settle(self, outcome: Outcome) -> None:
        settlement = self._settlement(outcome)
        await _in_thread(lambda: self._hold.settle(settlement))


class AsyncConsumer(AsyncIterator[AsyncLeasedTask]):
    """Leased tasks of one queue or several: `AsyncClient.consumer` makes it. See `Consumer`.

    `async with` registers it, and gives back at its end what is held. Iterating waits until there is a task, and ends
    after `stop`. A task that came when nobody waited any more is the first that the next one gets.
    """

    def __init__(self, driver: Driver, terms: Terms) -> None:
        self._driver = driver
        self._terms = terms
        self._consumer: Consumer | None = None
        self._coming: asyncio.Future[LeasedTask | None] | None = None

    async def __aenter__(self) -> Self:
        """Registers. Raises Unavailable or Uncertain."""
        registering = _in_thread(self._register)
        try:
            await asyncio.shield(registering)
        except asyncio.CancelledError:  # nobody will leave what was entered meanwhile: its lease would be renewed on
            registering.add_done_callback(self._leave)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def owner(self) -> str:
        """Under which name it holds tasks now: see `Consumer.owner`."""
        return self._entered.owner

    async def __anext__(self) -> AsyncLeasedTask:
        """Wait for a task. Raises as `Consumer`, and StopAsyncIteration after `stop` or `aclose`."""
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
        """Have iteration end. What is held stays so, and may be settled."""
        self._entered.stop()

    async def aclose(self) -> None:
        """Stop, and give back what is held. May be repeated."""
        await _in_thread(self._close)

    def _register(self) -> None:
        self._consumer = self._driver.consumer(self._terms)

    def _leave(self, registering: "asyncio.Future[None]") -> None:
        registering.exception()  # that nobody asks for it is no fault
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
    """Return the future of what the function returns or raises in a thread of its own. Nobody waits for the thread when
    the program ends, as is done for the threads of asyncio."""
    ended: Future[T] = Future()
    ended.set_running_or_notify_cancel()  # from here on a cancelled await leaves the thread to its work

    def run() -> None:
        try:
            ended.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            ended.set_exception(error)

    threading.Thread(target=run, name="rota-consumer", daemon=True).start()
    return asyncio.wrap_future(ended)
