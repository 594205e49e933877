"""The trim: the dead set is kept within its age and size."""

from typing import Final

from rota.child.settings import PollerSettings
from rota.poller.report import PollerReport
from rota.protocol.entry import MICROSECONDS
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import Refused

TRIM_SECONDS: Final = 60.0
_CALLS_A_TRIM: Final = 20


class Trimming:
    """Each minute up to 20 calls, as long as there is more to forget."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        self._trim = store.trim(round(settings.dead_max_age_seconds * MICROSECONDS), settings.dead_max_count)
        self._report = report
        self._next_call = now + TRIM_SECONDS
        self._calls = 0

    def due_at(self) -> float:
        """When its next step is due (monotonic)."""
        return self._next_call

    def step(self, connection: Connection, now: float) -> None:
        """Forget up to 500 dead tasks. Raises ServerError."""
        more = self._call(connection)
        self._calls += 1
        if not more or self._calls == _CALLS_A_TRIM:
            self._calls = 0
            self._next_call = now + TRIM_SECONDS

    def _call(self, connection: Connection) -> bool:
        try:
            return connection.run(self._trim).more
        except Refused as error:
            self._report.refused(error, call="trim")
            return False
