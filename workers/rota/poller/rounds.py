"""The poller's other rounds, in steps of one call each, so that promotions go on between any two of them.

Each has a rhythm of its own. What a step could not do is due again; what the server refused is reported and left out
until its next time, so that it holds up nothing else. Times are monotonic.
"""

import math
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from rota.child.settings import PollerSettings
from rota.poller.promoting import NextDue
from rota.poller.report import PollerReport
from rota.protocol.entry import MICROSECONDS
from rota.protocol.epitaph import LOST, Account
from rota.protocol.store import Blame, Store
from rota.protocol.wire import text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused

T = TypeVar("T")

SWEEP_SECONDS: Final = 0.9  # so that what was pushed without ringing starts within a second
_SWEEPS_A_LEASE: Final = 4  # at least: after half a lease without a sweep the whole fleet gets a lease of grace
_LOSS: Final = "the lease of its worker ran out: its node was lost, or cut off from Redis"

SCAN_COUNT: Final = 1000
_SCANS_A_BURST: Final = 10
_BURST_SECONDS: Final = 0.9
OWNERS_A_CALL: Final = 100
_START: Final = b"0"

TRIM_SECONDS: Final = 60.0
_CALLS_A_TRIM: Final = 20


class Round:
    """Work that recurs, one call a step. `due_at`: when its next step is due; in the past in the middle of a round."""

    due_at: float

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        self._settings = settings
        self._lease_ms = round(settings.lease_seconds * 1000)
        self._store = store
        self._report = report
        self.due_at = now

    def step(self, connection: Connection, now: float) -> NextDue | None:
        """Make one call; returns what it said of due times, if anything. Raises ServerError."""
        raise NotImplementedError

    def _unless_refused(self, name: str, call: Callable[[], T], owner: str = "") -> T | None:
        try:
            return call()
        except Refused as error:
            self._report.refused(error, name, owner)
            return None


class Sweeping(Round):
    """A sweep when it is time, else the next of the owners to retire that it named."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        super().__init__(settings, store, report, now)
        self._next_sweep = now
        self._expired: deque[str] = deque()

    def step(self, connection: Connection, now: float) -> NextDue | None:
        next_due = None
        if now >= self._next_sweep:
            next_due = self._sweep(connection, now)
            self._next_sweep = now + min(SWEEP_SECONDS, self._settings.lease_seconds / _SWEEPS_A_LEASE)
        else:
            self._retire(connection, self._expired[0])
            self._expired.popleft()
        self.due_at = -math.inf if self._expired else self._next_sweep
        return next_due

    def _sweep(self, connection: Connection, now: float) -> NextDue | None:
        swept = self._unless_refused("sweep", lambda: connection.run(self._store.sweep(self._lease_ms)))
        if swept is None:
            return None
        self._report.swept(swept)
        self._expired = deque(swept.expired)  # those of the last sweep that are still to be retired are among them
        return NextDue(swept.next_due_us, swept.now_us, now)

    def _retire(self, connection: Connection, owner: str) -> None:
        epitaph = Account(LOST, _LOSS).to_json(datetime.now(UTC))
        call = self._store.retire_expired(
            owner, Blame((), epitaph, self._settings.crash_limit, self._settings.loss_limit)
        )
        retired = self._unless_refused("retire", lambda: connection.run(call), owner)
        if retired is not None:
            self._report.retired(owner, retired)


class Orphans(Round):
    """The search for in-flight lists whose owner nobody registered: one walk over the keys of the server each lease.

    Scripts never scan keys, so the client does: a few calls of SCAN a second, that a server with a million keys does
    not notice.
    """

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        super().__init__(settings, store, report, now)
        self._prefix = store.keys.inflight("")
        self._cursor = _START
        self._scans = 0
        self._begun_at = self._next_scan = now
        self._found: list[str] = []
        self._orphans = 0

    def step(self, connection: Connection, now: float) -> None:
        """Have up to 100 of the found owners adopted, or look at some keys more. Raises ServerError."""
        if self._found:
            call = self._store.adopt_orphans(self._lease_ms, self._found[:OWNERS_A_CALL])
            self._orphans += self._unless_refused("orphans", lambda: connection.run(call)) or 0
            del self._found[:OWNERS_A_CALL]
        else:
            self._scan(connection, now)
        if self._cursor == _START and not self._found:
            self._report.orphans(self._orphans)
        self.due_at = -math.inf if self._found else self._next_scan

    def _scan(self, connection: Connection, now: float) -> None:
        if self._cursor == _START:
            self._begun_at, self._scans, self._orphans = now, 0, 0
        args = ("SCAN", self._cursor, "MATCH", f"{self._prefix}*", "COUNT", SCAN_COUNT)
        self._cursor, keys = self._unless_refused("scan", lambda: connection.execute(*args)) or (_START, [])
        self._found = [text_of(key).removeprefix(self._prefix) for key in keys]
        self._scans += 1
        if self._cursor == _START:
            self._next_scan = self._begun_at + self._settings.lease_seconds
        else:
            self._next_scan = now if self._scans % _SCANS_A_BURST else now + _BURST_SECONDS


class Trimming(Round):
    """Keeps the dead set within its age and size: each minute up to 20 calls, as long as there is more to forget."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, now: float) -> None:
        super().__init__(settings, store, report, now + TRIM_SECONDS)
        self._trim = store.trim(round(settings.dead_max_age_seconds * MICROSECONDS), settings.dead_max_count)
        self._calls = 0

    def step(self, connection: Connection, now: float) -> None:
        """Forget up to 500 dead tasks. Raises ServerError."""
        trimmed = self._unless_refused("trim", lambda: connection.run(self._trim))
        self._calls += 1
        if trimmed is None or not trimmed.more or self._calls == _CALLS_A_TRIM:
            self._calls = 0
            self.due_at = now + TRIM_SECONDS


class Rounds:
    """Sweep and retire within each second or oftener, look for orphans each lease, trim each minute: the first
    that is due has its step."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        now = clock()
        self._rounds: tuple[Round, ...] = tuple(
            kind(settings, store, report, now) for kind in (Sweeping, Orphans, Trimming)
        )

    def step(self, connection: Connection) -> NextDue | None:
        """Make one call of what is due, if anything is; returns what it said of due times. Raises ServerError."""
        now = self._clock()
        due = next((each for each in self._rounds if each.due_at <= now), None)
        return None if due is None else due.step(connection, now)

    @property
    def next_at(self) -> float:
        """When the next step is due, by the clock; long ago when one is due now."""
        return min(each.due_at for each in self._rounds)
