"""Declares this node's schedules with each heartbeat, and says what became of that when it is another than before."""

from collections.abc import Sequence
from typing import Final

from rota.protocol.schedules import SCHEDULES_A_CALL, Declared, DeclareWord, ScheduleStore
from rota.server.aio_connection import AioConnection
from rota.telemetry import events, log

_REASONS: Final = {
    DeclareWord.OLDER: "another node declares something else under this name, and began to do so later",
    DeclareWord.CLIENT: "a client has put one of this name: remove that, or give this one another name",
    DeclareWord.REFUSED: "that is no name",
}


class Declaring:
    """`known`: what became of each declaration last."""

    def __init__(self, connection: AioConnection, store: ScheduleStore) -> None:
        self._connection = connection
        self._store = store
        self._known: dict[str, DeclareWord] = {}

    async def declare(self, schedules: Sequence[Declared], ttl_ms: int) -> None:
        """Declare all of these for so long. Raises ServerError."""
        words: dict[str, DeclareWord] = {}
        for at in range(0, len(schedules), SCHEDULES_A_CALL):
            batch = schedules[at : at + SCHEDULES_A_CALL]
            answer = await self._connection.run(self._store.declare(ttl_ms, batch))
            words.update({each.name: word for each, word in zip(batch, answer, strict=True)})
        for name, word in words.items():
            self._tell(name, word)
        self._known = words

    def _tell(self, name: str, word: DeclareWord) -> None:
        if word in (DeclareWord.NEW, DeclareWord.CHANGED):
            log.logger().info(events.SCHEDULE_DECLARED, schedule=name, is_new=word is DeclareWord.NEW)
        elif word in _REASONS and self._known.get(name) is not word:
            log.logger().warning(events.SCHEDULE_NOT_DECLARED, schedule=name, error=_REASONS[word])
