"""What tasks say of their progress, carried from the slots to Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.child.slot_memory import SlotMemory
from rota.protocol.store import PROGRESS_BATCH
from rota.server.server_errors import ServerError
from rota_supervisor.layout import Role
from rota_supervisor.master.core.state import MasterState

CARRY_SECONDS: Final = 1.0


class Told(NamedTuple):
    """What the task of that entry, held by that owner, says."""

    owner: str
    entry: bytes
    text: bytes


@dataclass(slots=True, eq=False, repr=False)
class ProgressCarrier:
    """Beside the loop, about once a second: of the slots whose task says something new, all in one call. A fleet in
    which no task reports progress costs a look at one word of each task. `_known`: what Redis knows already."""

    _state: MasterState
    _memory: SlotMemory
    _tell: Callable[[list[Told]], Awaitable[object]]
    _known: set[Told] = field(default_factory=set)

    async def carry(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(CARRY_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Tell what is new. What could not be told is told later, if the task says nothing else meanwhile."""
        told = set(self._look())
        self._known &= told
        news = list(told - self._known)
        for start in range(0, len(news), PROGRESS_BATCH):
            batch = news[start : start + PROGRESS_BATCH]
            try:
                await self._tell(batch)
            except ServerError:  # reported by the connection's watch
                return
            self._known.update(batch)

    def _look(self) -> Iterator[Told]:
        for child in self._state.children.of(Role.WORKER):
            slot = self._memory.slot(child.slot)
            for record in slot.busy_records() if child.owner and slot.nonce == child.nonce else ():
                task = record.current() if record.has_progress else None
                if task is not None and (text := record.progress_of(task.entry)):
                    yield Told(child.owner, task.entry, text)
