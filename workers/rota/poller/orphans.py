"""The search for in-flight lists whose owner nobody registered.

Scripts never scan keys, so the client does: a few portions of SCAN a second, that a server with a million
keys does not notice, begun anew each lease.
"""

import math
from typing import Final

from rota.child.settings import PollerSettings
from rota.poller.report import PollerReport
from rota.protocol.store import Store
from rota.protocol.wire import text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused

SCAN_COUNT: Final = 1000
_PORTIONS_A_SPELL: Final = 10
_SPELL_SECONDS: Final = 0.9
OWNERS_A_CALL: Final = 100
_START: Final = b"0"
_MILLISECONDS: Final = 1000


class Orphans:
    """One walk over the keys of the server each lease: a portion of it, or a call for the owners that it found."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        self._lease_seconds = settings.lease_seconds
        self._lease_ms = round(settings.lease_seconds * _MILLISECONDS)
        self._store = store
        self._report = report
        self._prefix = store.keys.inflight("")
        self._cursor = _START
        self._portions = 0
        self._begun_at = now
        self._next_portion = now
        self._found: list[str] = []
        self._orphans = 0

    def due_at(self) -> float:
        """When its next step is due (monotonic)."""
        return -math.inf if self._found else self._next_portion

    def step(self, connection: Connection, now: float) -> None:
        """Have up to 100 of the found owners adopted, or look at some keys more. Raises ServerError."""
        if self._found:
            self._adopt(connection, self._found[:OWNERS_A_CALL])
            del self._found[:OWNERS_A_CALL]
        else:
            self._look(connection, now)
        if self._cursor == _START and not self._found:
            self._report.orphans(self._orphans)

    def _adopt(self, connection: Connection, owners: list[str]) -> None:
        try:
            self._orphans += connection.run(self._store.adopt_orphans(self._lease_ms, owners))
        except Refused as error:
            self._report.refused(error, call="orphans")

    def _look(self, connection: Connection, now: float) -> None:
        if self._cursor == _START:
            self._begun_at, self._portions, self._orphans = now, 0, 0
        try:
            self._cursor, keys = connection.execute(
                "SCAN", self._cursor, "MATCH", f"{self._prefix}*", "COUNT", SCAN_COUNT
            )
        except Refused as error:
            self._report.refused(error, call="scan")
            self._cursor, keys = _START, []
        self._found = [text_of(key).removeprefix(self._prefix) for key in keys]
        self._portions += 1
        self._next_portion = self._after(now)

    def _after(self, now: float) -> float:
        if self._cursor == _START:
            return self._begun_at + self._lease_seconds
        return now if self._portions % _PORTIONS_A_SPELL else now + _SPELL_SECONDS
