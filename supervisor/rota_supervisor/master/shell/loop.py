"""The master's loop: woken by what happens, and once a tick.

A step takes in what zygotes said, who died and what slots show, in the order in which it came about; then it ticks.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.children import Child
from rota_supervisor.master.core.events import Event, Looked, ZygoteGone
from rota_supervisor.master.core.ticking import wake_at
from rota_supervisor.master.effects.slots import SlotReader, now_seconds
from rota_supervisor.master.shell.inbox import Inbox

_AFTER_SECONDS: Final = 0.001  # the grain of epoll; and whatever is due is so only after its time


class Channels(Protocol):
    """What zygotes say."""

    def hear(self) -> Iterable[Event]:
        """What they and their intermediates have said so far."""


class Kernel(Protocol):
    """What becomes of children."""

    def reap(self, now: float, listen: Callable[[Child | None], None]) -> None:
        """Take in everything that has happened to them. `listen` takes in what zygotes said before that, and looks at
        the slot of one child."""


class Redis(Protocol):
    """Whether Redis answers: since when it owes an answer, `inf` when it owes none."""

    silent_since: float


class MasterLoop:
    """Steps until the fleet has left."""

    def __init__(self, inbox: Inbox, memory: SlotMemory, channels: Channels, kernel: Kernel, redis: Redis) -> None:
        self._inbox = inbox
        self._state = inbox.state
        self._memory = memory
        self._channels = channels
        self._kernel = kernel
        self._redis = redis
        self._reader = SlotReader(memory)

    async def run(self) -> None:
        """Step until everything has left. Raises Failure when the first generation never works."""
        inbox = self._inbox
        while True:
            self.step()
            if inbox.failure is not None:
                raise inbox.failure
            if inbox.has_left:
                return
            try:
                async with asyncio.timeout(self.seconds_to_wait()):
                    await inbox.wake.wait()
            except TimeoutError:
                continue

    def step(self) -> None:
        """Take in what has happened, tick, and show that the master lives."""
        self._listen(None)
        self._kernel.reap(now_seconds(), self._listen)
        looks = self._reader.look(self._state.children)
        self._listen(None)  # what a zygote imported was sent before it showed itself ready
        if looks:
            self._inbox.happened(Looked(looks))
        self._inbox.tick(self._redis.silent_since)
        own = self._memory.slot(MASTER_SLOT)
        own.phase = self._state.phase
        own.beat()

    def _listen(self, child: Child | None) -> None:
        """Take in what zygotes and their intermediates have said so far, and what the slot of one child shows."""
        for event in self._channels.hear():
            if isinstance(event, ZygoteGone):
                self._look_at(self._state.children.get(event.slot, event.nonce))
            self._inbox.happened(event)
        self._look_at(child)

    def _look_at(self, child: Child | None) -> None:
        looks = self._reader.look(() if child is None else (child,))
        if looks:
            self._inbox.happened(Looked(looks))

    def seconds_to_wait(self) -> float:
        """Until the next step, if nothing happens before."""
        return min(TICK_SECONDS, max(0.0, wake_at(self._state) - now_seconds()) + _AFTER_SECONDS)
