"""Declares this node's schedules with each heartbeat, and says what came of that when it is another than before."""

from collections.abc import Sequence
from typing import Final

from rota.protocol.schedules import SCHEDULES_A_CALL, Declared, DeclareWord, ScheduleStore
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import Refused
from rota.telemetry import events, log

_REASONS: Final = {
    DeclareWord.OLDER: "another node declares something else under this name, and began to do so later",
    DeclareWord.CLIENT: "a client has put one of this name: remove that, or give this one another name",
    DeclareWord.REFUSED: "that is no name",
}


class Declaring:
    """Over the connection of the master."""

    def __init__(self, connection: AioConnection, store: ScheduleStore) -> None:
        self._connection = connection
        self._store = store
        self._known: dict[str, DeclareWord] = {}
        self._refusal = ""

    async def declare(self, schedules: Sequence[Declared], ttl_ms: int) -> None:
        """Declare all of these for so long. What the server refuses is said once, and holds up no lease. Raises
        ServerError for the rest."""
        try:
            words = await self._declare(schedules, ttl_ms)
        except Refused as error:
            if str(error) != self._refusal:
                log.logger().error(events.REDIS_REFUSED, call="declare", error=str(error))
            self._refusal = str(error)
            return
        for name, word in words.items():
            self._tell(name, word)
        self._known, self._refusal = words, ""

    async def _declare(self, schedules: Sequence[Declared], ttl_ms: int) -> dict[str, DeclareWord]:
        words: dict[str, DeclareWord] = {}
        for at in range(0, len(schedules), SCHEDULES_A_CALL):
            batch = schedules[at : at + SCHEDULES_A_CALL]
            answer = await self._connection.run(self._store.declare(ttl_ms, batch))
            words |= {each.name: word for each, word in zip(batch, answer, strict=True)}
        return words

    def _tell(self, name: str, word: DeclareWord) -> None:
        if word in (DeclareWord.NEW, DeclareWord.CHANGED):
            log.logger().info(events.SCHEDULE_DECLARED, schedule=name, is_new=word is DeclareWord.NEW)
        elif word in _REASONS and self._known.get(name) is not word:
            log.logger().warning(events.SCHEDULE_NOT_DECLARED, schedule=name, error=_REASONS[word])
