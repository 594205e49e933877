"""The poller's other rounds: sweep and retire within each second or oftener, trim each minute, orphans each lease."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from rota.child.settings import PollerSettings
from rota.poller.orphans import OrphanScan, in_batches
from rota.poller.report import PollerReport
from rota.protocol.epitaph import Epitaph
from rota.protocol.store import Blame, Store
from rota.server.connection import Connection

SWEEP_SECONDS: Final = 0.9  # so that what was pushed without ringing starts within a second
_SWEEPS_A_LEASE: Final = 4  # at least: after half a lease without a sweep the whole fleet gets a lease of grace
TRIM_SECONDS: Final = 60.0
_TRIMS_A_ROUND: Final = 20
_MILLISECONDS: Final = 1000
_MICROSECONDS: Final = 1_000_000
_LOSS: Final = "the lease of its worker ran out: its node was lost, or cut off from Redis"


class Rounds:
    """Each round has its own rhythm; `clock` is monotonic."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._store = store
        self._report = report
        self._clock = clock
        self._lease_ms = round(settings.lease_seconds * _MILLISECONDS)
        self._sweep_seconds = min(SWEEP_SECONDS, settings.lease_seconds / _SWEEPS_A_LEASE)
        self._next_sweep = clock()
        self._next_trim = clock() + TRIM_SECONDS
        self._next_scan = clock()
        self._scan: OrphanScan | None = None
        self._orphans = 0

    def go(self, connection: Connection) -> None:
        """Do what is due of them. Raises ServerError; what was not done is due again."""
        now = self._clock()
        if now < self._next_sweep:
            return
        self._sweep(connection)
        self._look_for_orphans(connection, now)
        if now >= self._next_trim:
            self._trim(connection)
            self._next_trim = now + TRIM_SECONDS
        self._next_sweep = now + self._sweep_seconds

    @property
    def next_at(self) -> float:
        """When the next of them is due, by the clock."""
        return self._next_sweep

    def _sweep(self, connection: Connection) -> None:
        swept = connection.run(self._store.sweep(self._lease_ms))
        self._report.swept(swept)
        for owner in swept.expired:
            self._report.retired(owner, connection.run(self._store.retire_expired(owner, self._blame())))

    def _blame(self) -> Blame:
        epitaph = Epitaph("lost", _LOSS).to_json(datetime.now(UTC))
        return Blame((), epitaph, self._settings.crash_limit, self._settings.loss_limit)

    def _look_for_orphans(self, connection: Connection, now: float) -> None:
        if self._scan is None:
            if now < self._next_scan:
                return
            self._scan, self._orphans = OrphanScan(self._store.keys), 0
            self._next_scan = now + self._settings.lease_seconds
        for owners in in_batches(self._scan.portion(connection)):
            self._orphans += connection.run(self._store.adopt_orphans(self._lease_ms, owners))
        if self._scan.over:
            self._report.orphans(self._orphans)
            self._scan = None

    def _trim(self, connection: Connection) -> None:
        age_us = round(self._settings.dead_max_age_seconds * _MICROSECONDS)
        for _ in range(_TRIMS_A_ROUND):
            if not connection.run(self._store.trim(age_us, self._settings.dead_max_count)).more:
                return
