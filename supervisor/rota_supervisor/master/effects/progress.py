"""What tasks say of their progress, carried from the slots to Redis."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.child.slot_memory import SlotMemory
from rota.protocol.store import PROGRESS_BATCH
from rota.server.server_errors import ServerError
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.redis_calls import RedisWatch

CARRY_SECONDS: Final = 1.0


class Told(NamedTuple):
    """What the task of that entry, held by that owner, says."""

    owner: str
    entry: bytes
    text: bytes


@dataclass(slots=True, eq=False, repr=False)
class ProgressCarrier:
    """Beside the loop, about once a second: of the slots whose task says something new, all in one call. A fleet in
    which no task reports progress costs a look at one word of each slot. `_known`: what Redis knows already."""

    _state: MasterState
    _memory: SlotMemory
    _redis: RedisWatch
    _known: set[Told] = field(default_factory=set)

    async def carry(self) -> None:
        """For ever. What could not be told is told later: only what is said last matters."""
        while True:
            await asyncio.sleep(CARRY_SECONDS)
            told = set(self._look(self._state.children.of(Role.WORKER)))
            self._known &= told
            news = list(told - self._known)
            for start in range(0, len(news), PROGRESS_BATCH):
                await self._tell(news[start : start + PROGRESS_BATCH])

    async def _tell(self, news: list[Told]) -> None:
        try:
            await self._redis.connection.run(self._redis.store.carry_progress(news))
        except ServerError:  # reported by the connection's watch
            return
        self._known.update(news)

    def _look(self, workers: Iterable[Child]) -> Iterable[Told]:
        for child in workers:
            slot = self._memory.slot(child.slot)
            if child.owner and slot.nonce == child.nonce and slot.has_progress and (task := slot.current_task()):
                text = slot.progress_of(task.entry)
                if text:
                    yield Told(child.owner, task.entry, text)
