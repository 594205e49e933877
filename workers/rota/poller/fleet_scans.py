"""The scans of the keys, the delayed set and the lanes, which one poller makes for the whole fleet.

Scripts never scan, so a poller has to. The poller makes a few calls at a time, and each call takes a few hundred
microseconds. So even a server with a million keys slows down very little. The reply to a sweep decides which poller
scans.
"""

import math
from typing import Any, Final

from rota.child.child_settings import PollerSettings
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import Leadership, Round
from rota.protocol.keys import DELAYED_SUFFIX, fault_of_lane, pattern_of_lists
from rota.protocol.scans import BloomFilter, UnplacedScan, find_unplaced
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH, OWNERS_A_CALL, Store
from rota.protocol.wire import text_of
from rota.server.connection import Connection

SCAN_COUNT: Final = 1000
BURST_SECONDS: Final = 0.9
_START: Final = b"0"

KEYS_SECONDS: Final = 30.0  # pause between two scans, short enough to find any lane among 600,000 keys within a minute
SCANS_A_BURST: Final = 20
MOST_STRAYS: Final = 5  # maximum number of keys that the log names; `rota audit` names all of them

SEARCHES_A_BURST: Final = (
    100  # enough to scan a delayed set of 100,000 members in one burst, so that all new items are found within a second
)
SEARCH_AGAIN_SECONDS: Final = 60.0
ADOPTED_A_CALL: Final = 100
_NO_NAME: Final = "[^-A-Za-z0-9_.:]*"  # matches only members whose first character cannot occur in an id

AUDIT_SECONDS: Final = 60.0
# The pause between two calls. It permits up to 100 calls per second, each with up to 500 ids.
AUDIT_PAUSE_SECONDS: Final = 0.01
_REST_PER_SCAN: Final = 2  # the pause after a scan is this many times as long as the scan, but at least AUDIT_SECONDS
MOST_SUSPECTS: Final = 10_000


class FleetRound(Round):
    """A round that only the leader makes. The leader is one of the pollers of the fleet: the sweep of a poller reports
    whether it leads."""

    @property
    def due_at(self) -> float:
        return self._next_at if self._leadership.is_leader else math.inf


class KeyScan(FleetRound):
    """The scan for lists that are not registered anywhere. It covers all keys of the server at least once per lease.

    It finds in-flight lists of unknown owners, lanes that other programs have created and that are not registered as
    queues, and keys that look like lanes but are not.
    """

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now)
        self._pattern = pattern_of_lists(store.keys)
        self._inflight = store.keys.inflight("")
        self._lane = store.keys.ready_lane("")
        self._cursor = _START
        self._scans = 0
        self._started_at = self._next_scan = now
        self._owners: list[str] = []
        self._queues: list[str] = []
        self._orphans = 0
        self._adopted = frozenset(source.key for source in settings.adopts)
        self._strays: dict[str, str] = {}

    def step(self, connection: Connection, now: float) -> None:
        """Take one step: register some of the owners or queues that were found, or scan more keys. Raises
        ServerError."""
        if self._owners:
            orphans = self._store.adopt_orphans(self._lease_ms, self._owners[:OWNERS_A_CALL])
            self._orphans += self._unless_refused("orphans", lambda: connection.run(orphans)) or 0
            del self._owners[:OWNERS_A_CALL]
        elif self._queues:
            queues = self._store.list_queues(self._queues[:BATCH])
            self._unless_refused("list_queues", lambda: connection.run(queues))
            del self._queues[:BATCH]
        else:
            self._scan(connection, now)
        is_found = bool(self._owners or self._queues)
        if self._cursor == _START and not is_found:
            self._report.orphans(self._orphans)
            self._report.strays(self._strays)
        self._next_at = -math.inf if is_found else self._next_scan

    def _scan(self, connection: Connection, now: float) -> None:
        if self._cursor == _START:
            self._started_at = now
            self._scans = 0
            self._orphans = 0
            self._strays = {}
        args = ("SCAN", self._cursor, "MATCH", self._pattern, "COUNT", SCAN_COUNT, "TYPE", "list")
        self._cursor, keys = self._unless_refused("scan", lambda: connection.execute(*args)) or (_START, [])
        names = list(map(text_of, keys))
        self._owners = [name.removeprefix(self._inflight) for name in names if name.startswith(self._inflight)]
        lanes = {name.removeprefix(self._lane) for name in names if name.startswith(self._lane)}
        self._queues = sorted({lane.removesuffix(DELAYED_SUFFIX) for lane in lanes})
        self._note_strays(names)
        self._scans += 1
        if self._cursor == _START:
            self._next_scan = self._started_at + min(self._settings.lease_seconds, KEYS_SECONDS)
        else:
            self._next_scan = now if self._scans % SCANS_A_BURST else now + BURST_SECONDS

    def _note_strays(self, names: list[str]) -> None:
        for name in names:
            fault = "" if name in self._adopted else fault_of_lane(self._store.keys, name)
            if fault and len(self._strays) < MOST_STRAYS:
                self._strays[name] = fault


class ScheduledAdoption(FleetRound):
    """The search for items that producers in other languages have added to the delayed set. Each item has to become a
    task well before it is due. The search runs if a sweep has reported such items."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now)
        self._cursor = _START
        self._scans = self._legacy_at_start = self._taken = 0
        self._members: list[bytes] = []
        self._again_at = now

    @property
    def due_at(self) -> float:
        if not self._leadership.is_leader:
            return math.inf
        if self._members or self._cursor != _START or self._leadership.legacy_items > self._leadership.left:
            return self._next_at
        return self._again_at if self._leadership.legacy_items else math.inf

    def step(self, connection: Connection, now: float) -> None:
        """Take one step: make tasks of some of the items that were found, or scan more members of the delayed set.
        Raises ServerError."""
        if self._members:
            adopt = self._store.adopt_scheduled(self._members[:ADOPTED_A_CALL])
            adopted = self._unless_refused("adopt_scheduled", lambda: connection.run(adopt))
            if adopted is not None:
                self._report.adopted(adopted)
                self._taken += adopted.adopted + len(adopted.dead)
            del self._members[:ADOPTED_A_CALL]
        else:
            self._scan(connection, now)
        if self._cursor == _START and not self._members:
            self._leadership.searched(self._legacy_at_start, self._taken)
            self._again_at = now + SEARCH_AGAIN_SECONDS

    def _scan(self, connection: Connection, now: float) -> None:
        if self._cursor == _START:
            self._legacy_at_start = self._leadership.legacy_items
            self._taken = 0
            self._scans = 0
        args = ("ZSCAN", self._store.keys.delayed, self._cursor, "MATCH", _NO_NAME, "COUNT", SCAN_COUNT)
        self._cursor, found = self._unless_refused("zscan", lambda: connection.execute(*args)) or (_START, [])
        self._members = found[::2]  # `found` alternates between members and scores
        self._scans += 1
        self._next_at = now if self._scans % SEARCHES_A_BURST else now + BURST_SECONDS


class AuditScan(FleetRound):
    """The search for unplaced tasks, which is a part of the audit: see `rota.protocol.scans`. After each search there
    is a pause of at least a minute, and of at least twice the duration of the search."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now)
        self._start(now)

    def _start(self, now: float) -> None:
        self._started_at = now
        self._scan: UnplacedScan = find_unplaced(self._store, BloomFilter, MOST_SUSPECTS)
        self._call: ScriptCall[Any] = next(self._scan)

    def step(self, connection: Connection, now: float) -> None:
        """Make the next call of the search. Raises ServerError."""
        reply = self._unless_refused("audit", lambda: connection.run(self._call))
        if reply is None:
            self._end(now)
            return
        try:
            self._call = self._scan.send(reply)
            self._next_at = now + AUDIT_PAUSE_SECONDS
        except StopIteration as over:
            self._report.unplaced(list(map(text_of, over.value)))
            self._end(now)

    def _end(self, now: float) -> None:
        self._next_at = now + max(AUDIT_SECONDS, _REST_PER_SCAN * (now - self._started_at))
        self._start(self._next_at)
