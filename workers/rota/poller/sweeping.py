"""The sweep, and the retirement of the owners it names."""

import math
from collections import deque
from datetime import UTC, datetime
from typing import Final

from rota.child.settings import PollerSettings
from rota.poller.report import PollerReport
from rota.poller.rest import Outlook
from rota.protocol.epitaph import Epitaph
from rota.protocol.store import Blame, Store
from rota.server.connection import Connection
from rota.server.server_errors import Refused

SWEEP_SECONDS: Final = 0.9  # so that what was pushed without ringing starts within a second
_SWEEPS_A_LEASE: Final = 4  # at least: after half a lease without a sweep the whole fleet gets a lease of grace
_MILLISECONDS: Final = 1000
_LOSS: Final = "the lease of its worker ran out: its node was lost, or cut off from Redis"


class Sweeping:
    """A sweep when it is time, else the next owner to retire."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        self._settings = settings
        self._store = store
        self._report = report
        self._lease_ms = round(settings.lease_seconds * _MILLISECONDS)
        self._seconds = min(SWEEP_SECONDS, settings.lease_seconds / _SWEEPS_A_LEASE)
        self._next_sweep = now
        self._expired: deque[str] = deque()

    def due_at(self) -> float:
        """When its next step is due (monotonic)."""
        return -math.inf if self._expired else self._next_sweep

    def step(self, connection: Connection, now: float) -> Outlook | None:
        """Sweep, and tell what is due next; or retire one owner. Raises ServerError."""
        if now >= self._next_sweep:
            outlook = self._sweep(connection, now)
            self._next_sweep = now + self._seconds
            return outlook
        self._retire(connection, self._expired[0])
        self._expired.popleft()
        return None

    def _sweep(self, connection: Connection, now: float) -> Outlook | None:
        try:
            swept = connection.run(self._store.sweep(self._lease_ms))
        except Refused as error:
            self._report.refused(error, call="sweep")
            return None
        self._report.swept(swept)
        self._expired = deque(swept.expired)  # those of the last sweep that are still to be retired are among them
        return Outlook(swept.next_due_us, swept.now_us, now)

    def _retire(self, connection: Connection, owner: str) -> None:
        try:
            retired = connection.run(self._store.retire_expired(owner, self._blame()))
        except Refused as error:
            self._report.refused(error, call="retire", owner=owner)
            return
        self._report.retired(owner, retired)

    def _blame(self) -> Blame:
        epitaph = Epitaph("lost", _LOSS).to_json(datetime.now(UTC))
        return Blame((), epitaph, self._settings.crash_limit, self._settings.loss_limit)
