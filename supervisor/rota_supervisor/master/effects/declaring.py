"""Declares this node's schedules with each heartbeat, and says what came of that when it is another than before.

A schedule that is not declared any more is removed at once when no other node is there, as after a reload of a fleet of
one node. Else a sweep finds out, two leases later, whether somebody declares it still.
"""

from collections.abc import Collection, Sequence
from typing import Final

from rota.protocol.schedule_store import SCHEDULES_A_CALL, Declared, DeclareWord, RemoveWord, ScheduleStore
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import Refused
from rota.telemetry import log, log_events
from rota.telemetry.log import OnceAMinute

_DECLARED: Final = (DeclareWord.KEPT, DeclareWord.NEW, DeclareWord.CHANGED)
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
        self._rarely = OnceAMinute()
        self._stands: dict[str, Declared] = {}

    async def declare(self, schedules: Sequence[Declared], ttl_ms: int) -> None:
        """Declare all of these for so long. What the server refuses holds up no lease. Raises
        ServerError for the rest."""
        try:
            words = await self._declare(schedules, ttl_ms)
        except Refused as error:
            self._tell_refusal("declare", error)
            return
        for name, word in words.items():
            self._tell(name, word)
        self._stands |= {each.name: each for each in schedules if words[each.name] in _DECLARED}
        self._known = words

    async def withdraw(self, schedules: Collection[Declared], *, is_alone: bool) -> None:
        """Remove what this node declared before, and does not now, if it is alone. Raises ServerError."""
        kept = {each.name for each in schedules}
        for gone in [each for name, each in self._stands.items() if name not in kept]:
            if is_alone:
                await self._remove(gone)
            del self._stands[gone.name]

    async def _remove(self, gone: Declared) -> None:
        """Its declaration ends now; so it stays if a node that is just coming declares it in between. When an answer
        was lost it is declared anew for this instant, and removed."""
        try:
            [word] = await self._connection.run(self._store.declare(0, [gone]))
            if word not in _DECLARED:
                return
            if await self._connection.run(self._store.forget(gone.name, 0)) is RemoveWord.REMOVED:
                log.logger().info(log_events.SCHEDULE_REMOVED, schedule=gone.name)
        except Refused as error:  # a sweep will see to it
            self._tell_refusal("forget", error)

    def _tell_refusal(self, call: str, error: Refused) -> None:
        if self._rarely.is_due(call):
            log.logger().error(log_events.REDIS_REFUSED, call=call, error=str(error))

    async def _declare(self, schedules: Sequence[Declared], ttl_ms: int) -> dict[str, DeclareWord]:
        words: dict[str, DeclareWord] = {}
        for at in range(0, len(schedules), SCHEDULES_A_CALL):
            batch = schedules[at : at + SCHEDULES_A_CALL]
            answer = await self._connection.run(self._store.declare(ttl_ms, batch))
            words |= {each.name: word for each, word in zip(batch, answer, strict=True)}
        return words

    def _tell(self, name: str, word: DeclareWord) -> None:
        if word in (DeclareWord.NEW, DeclareWord.CHANGED):
            log.logger().info(log_events.SCHEDULE_DECLARED, schedule=name, is_new=word is DeclareWord.NEW)
        elif word in _REASONS and self._known.get(name) is not word:
            log.logger().warning(log_events.SCHEDULE_NOT_DECLARED, schedule=name, error=_REASONS[word])
