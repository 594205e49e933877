"""The rounds that every poller makes, in steps of one call each, so that promotions continue between two steps.

Each round has its own interval. If the connection fails during a step, the step is due again at once. If the server
refuses a call, the call is reported and not repeated before the next interval. So it does not hold up the other rounds.
Times are monotonic.

The round of legacy lists takes all items from lists, and due items from sorted sets. Every poller of the fleet checks
for items from time to time. The server also notifies one poller, the listening poller, of each change, so that poller
takes each item as soon as it is due. The reply to each call decides which poller listens. If the listening poller dies,
another one takes the items within a second.

The round of schedules puts occurrences into the delayed set a few seconds before they are due. From the delayed set
they are promoted like any other delayed task, even if this round is late by then. Several pollers may try to enqueue an
occurrence at the same time. The script accepts only occurrences that were computed from the current record, so only the
first poller succeeds. To avoid useless calls, the poller that scans for the fleet begins earlier than the others.
"""

import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from rota.child.child_settings import PollerSettings
from rota.poller.poller_bell import BellState, KeyTracking
from rota.poller.poller_report import PollerReport
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import LOST, FailureRecord
from rota.protocol.replies import AdoptedLegacy, Swept
from rota.protocol.schedule_store import (
    SCHEDULES_A_PAGE,
    RemoveStatus,
    ScheduleStore,
    StoredSchedule,
    read_schedule_record,
)
from rota.protocol.signatures import schedule_kind
from rota.protocol.store import Blame, Store
from rota.server.connection import Connection
from rota.server.server_errors import PushedBack, Refused
from rota.tasks.keyring import keyring_of

T = TypeVar("T")

# Check at least this often, because other programs may use ZADD without ringing a doorbell.
LONGEST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class NextDue:
    """The next due time in the delayed set, with the Redis time of the call that reported it.

    Redis time is converted to monotonic time as if the call had arrived at the moment when it was sent. So if the next
    call takes equally long to arrive and is sent at `due_at`, it arrives exactly when the task is due.
    """

    next_due_us: int | None  # in Redis time, or None if the delayed set is empty
    now_us: int  # Redis time
    sent_at: float  # when the call that reported the due time was sent (monotonic)
    fresh_seconds: float = LONGEST_SECONDS  # for how long the due time is known

    @property
    def due_at(self) -> float:
        """The next due time (monotonic)."""
        if self.next_due_us is None:
            return math.inf
        return self.sent_at + (self.next_due_us - self.now_us) / MICROSECONDS

    @property
    def stale_at(self) -> float:
        """The time at which the next due time must be read again (monotonic)."""
        return self.sent_at + self.fresh_seconds


UNKNOWN_DUE: Final = NextDue(None, 0, -math.inf)
"""The value before the first call of `promote`, and after a lost connection. It makes the next call due at once."""


@dataclass(slots=True)
class Leadership:
    """The duties that the last sweep assigned to this poller."""

    # The state shared with the bell: which legacy lists are tracked, and whether they have changed.
    listening: BellState
    is_leader: bool = False  # whether this poller scans for the fleet
    legacy_items: int = 0  # number of items of the delayed set without a ticket
    # How many of the `legacy_items` a search could not adopt, because they are tasks of Rota whose ticket was lost.
    left: int = 0
    # The time of the first occurrence that is not enqueued yet (monotonic), or `inf` if there is no such occurrence or
    # its time is unknown.
    schedule_at: float = math.inf
    # Schedules that no node declares any longer, which this poller removes.
    undeclared: list[str] = field(default_factory=list)

    def take_sweep(self, swept: Swept, sent_at: float) -> None:
        self.is_leader = swept.is_leader
        self.legacy_items = swept.legacy_items
        self.left = min(self.left, self.legacy_items)
        following = swept.next_schedule_us
        self.schedule_at = math.inf if following is None else sent_at + (following - swept.now_us) / MICROSECONDS
        self.undeclared = list(swept.undeclared)

    def searched(self, legacy_at_start: int, found: int) -> None:
        """Record the end of a search through the delayed set for items that other programs have added. When it began,
        the set had `legacy_at_start` such items, and the search has taken `found` of them."""
        self.legacy_items = self.left = max(0, legacy_at_start - found)


class Round:
    """A recurring duty of a poller, with its own interval. Each step makes one call."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        self._settings = settings
        self._lease_ms = round(settings.lease_seconds * 1000)
        self._store = store
        self._report = report
        self._leadership = leadership
        self._next_at = now

    @property
    def due_at(self) -> float:
        """The time at which the next step is due. If the round has begun and has more steps to take, the time is in the
        past."""
        return self._next_at

    def step(self, connection: Connection, now: float) -> NextDue | None:
        """Make one call. Returns the next due time in the delayed set if the reply contained it. Raises ServerError."""
        raise NotImplementedError

    def _unless_refused(self, name: str, call: Callable[[], T], owner: str = "") -> T | None:
        try:
            return call()
        except Refused as error:
            self._report.refused(error, name, owner)
            return None


CHUNK: Final = 125  # the server needs 11 us per item, so a chunk delays turns by 1.4 ms, as a chunk of promotions does
# The shortest time between two calls, so that a flood of items leaves time for other rounds.
PAUSE_SECONDS: Final = 0.003
# The interval between checks by every poller, so that items are found even if the poller that was notified of them has
# been killed.
LEGACY_POLL_SECONDS: Final = 0.25
UNNOTIFIED_SECONDS: Final = 0.04  # interval between checks by the listening poller if the server does not notify it
REFUSED_SECONDS: Final = 1.0

# Interval between sweeps. It is so short that a task that was pushed without ringing a doorbell starts within a second.
SWEEP_SECONDS: Final = 0.9
# Pause between a change and the sweep that follows, so that a worker can first claim the task that `enqueue` has added.
SETTLE_SECONDS: Final = 0.01
# Pause between a sweep after a change and the next check. It doubles after each sweep that finds no item pushed
# directly.
REARM_SECONDS: Final = 0.05
# The minimum number of sweeps per lease. If half a lease passes without a sweep, no owner is reaped for another lease.
_SWEEPS_A_LEASE: Final = 4
# Interval between sweeps while the fleet is idle. It is shorter than 5 s, because a leader that makes no sweep for 5 s
# loses its role.
QUIET_SECONDS: Final = 4.0
# Interval at which a reserve poller checks whether it should sweep: see shared/sweepers.lua.
RESERVE_SECONDS: Final = 4.0
# For how long after its start a poller sweeps even if all places are taken. The pollers that have the places may have
# just ended, for example because all nodes were restarted at once, and their places become free only after 5 s.
NEW_SECONDS: Final = 10.0
_LOSS: Final = "its worker's lease expired because the node was lost or cut off from Redis"
_NAME_BYTES: Final = 8

TRIM_SECONDS: Final = 60.0
_CALLS_A_TRIM: Final = 20


class SweepRound(Round):
    """The round that sweeps, and between sweeps reaps the owners that the last sweep reported.

    The reply to a sweep also contains the duties of this poller.

    While the fleet is idle, most sweeps are replaced by a single `EXISTS`, which checks that there is still none of the
    keys that any work would create. The server tracks these keys, and a change of any of them triggers the next sweep.

    If the reply shows that enough other pollers sweep, this poller becomes a reserve, unless it is new. A reserve
    promotes nothing, and only checks every RESERVE_SECONDS whether it should sweep again.
    """

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now)
        name = os.urandom(_NAME_BYTES).hex()
        self._call = store.sweep(self._lease_ms, name, settings.forget_queue_seconds)
        self._call_without_place = store.sweep(self._lease_ms, "", settings.forget_queue_seconds)
        self._is_new_until = now + NEW_SECONDS
        self._pulse_seen: list[bytes] | None = None  # what this poller last read as a reserve
        self._tracking = KeyTracking(leadership.listening)
        self._next_sweep = now
        self._quiet_until = -math.inf
        self._watched: tuple[str, ...] = ()
        self._rearm_seconds = REARM_SECONDS
        self._expired: deque[str] = deque()

    @property
    def due_at(self) -> float:
        return min(self._next_at, self._tracking.changed_at + SETTLE_SECONDS)

    def step(self, connection: Connection, now: float) -> NextDue | None:
        next_due = None
        if self._leadership.listening.is_reserve:
            next_due = self._stand_by(connection, now)
        elif now >= min(self._next_sweep, self._tracking.changed_at + SETTLE_SECONDS):
            next_due = self._check_or_sweep(connection, now)
        else:
            self._reap(connection, self._expired[0])
            self._expired.popleft()
        self._next_at = -math.inf if self._expired else self._next_sweep
        return next_due

    def _at_most(self, seconds: float) -> float:
        return min(seconds, self._settings.lease_seconds / _SWEEPS_A_LEASE)

    def _check_or_sweep(self, connection: Connection, now: float) -> NextDue | None:
        next_at = now + self._at_most(SWEEP_SECONDS)
        has_changed = math.isfinite(self._tracking.changed_at)
        if has_changed:
            self._tracking.disarm()
        elif self._tracking.is_armed:  # No tracked key has changed for a whole interval.
            self._rearm_seconds = REARM_SECONDS
        if not has_changed and self._is_quiet(connection, next_at):
            self._next_sweep = next_at
            return NextDue(None, 0, now)
        swept = self._sweep(connection, now)
        if swept is None:
            self._next_sweep = next_at
            return None
        if swept.is_reserve:
            return self._become_reserve(now)
        self._next_sweep = now + self._seconds_to_rearm(swept) if has_changed else next_at
        return NextDue(swept.next_due_us, swept.now_us, now)

    def _become_reserve(self, now: float) -> NextDue:
        self._tracking.disarm()
        self._leadership.listening.is_reserve = True
        self._next_sweep = now + RESERVE_SECONDS
        # The other pollers promote, so a reserve has nothing to promote until after its next check.
        return NextDue(None, 0, now, 2 * RESERVE_SECONDS)

    def _stand_by(self, connection: Connection, now: float) -> NextDue:
        """Check whether this reserve should sweep, because a place is free or no poller has swept since the last check.
        If the server refuses the check, the poller sweeps."""
        read = ("HMGET", self._store.keys.pulse, "at", "free")
        pulse = self._unless_refused("sweep", lambda: connection.execute(*read))
        if pulse is not None and pulse != self._pulse_seen and pulse[1] == b"0":
            self._pulse_seen = pulse
            self._report.checked()
            return self._become_reserve(now)
        self._leadership.listening.is_reserve = False
        self._next_sweep = now
        return UNKNOWN_DUE

    def _seconds_to_rearm(self, swept: Swept) -> float:
        """Return how long to wait before the keys are tracked again, in seconds.

        This is called after an early sweep, which a change of a key has triggered. If the sweep has found items that a
        program pushed without the client, the wait is short, because more items may follow. Otherwise the wait doubles
        each time, up to SWEEP_SECONDS.
        """
        has_legacy_items = swept.rescues > 0 or swept.legacy_items > self._leadership.left
        seconds = REARM_SECONDS if has_legacy_items else self._rearm_seconds
        self._rearm_seconds = 2 * seconds
        return self._at_most(min(seconds, SWEEP_SECONDS))

    def _is_quiet(self, connection: Connection, next_at: float) -> bool:
        """Whether the watched keys are still absent, so that no sweep is necessary before `next_at`.

        After this check, the server reports changes of these keys. Earlier changes are found by the check itself, or by
        the sweep that follows it.
        """
        watched = self._watched
        is_in_time = next_at <= self._quiet_until
        if not watched or not (self._tracking.arm(connection, watched) or is_in_time):
            return False
        self._watched = ()  # if the check fails, the state of the watched keys is unknown
        found = self._unless_refused("sweep", lambda: connection.execute("EXISTS", *watched))
        if found != 0 or not is_in_time:
            return False
        self._watched = watched
        self._report.checked()
        return True

    def _sweep(self, connection: Connection, now: float) -> Swept | None:
        swept = self._unless_refused("sweep", lambda: connection.run(self._call))
        if swept is not None and swept.is_reserve and now < self._is_new_until:
            swept = self._unless_refused("sweep", lambda: connection.run(self._call_without_place))
        if swept is None:
            return None
        self._report.swept(swept)
        self._leadership.take_sweep(swept, now)
        self._watched = swept.watched
        self._quiet_until = now + self._at_most(QUIET_SECONDS) if swept.is_quiet else -math.inf
        if swept.lease_ends_us is not None:
            lease_ends_at = now + (swept.lease_ends_us - swept.now_us) / MICROSECONDS
            self._quiet_until = min(self._quiet_until, lease_ends_at)
        # Forget the owners that the last sweep reported. If they have not been reaped yet, this sweep reports them
        # again.
        self._expired = deque(swept.expired)
        return swept

    def _reap(self, connection: Connection, owner: str) -> None:
        loss_record = FailureRecord(LOST, _LOSS).to_json(datetime.now(UTC))
        call = self._store.reap_expired(
            owner, Blame((), loss_record, self._settings.crash_limit, self._settings.loss_limit)
        )
        reaped = self._unless_refused("reap", lambda: connection.run(call), owner)
        if reaped is not None:
            self._report.reaped(owner, reaped)


class TrimRound(Round):
    """The round that removes dead tasks beyond the maximum age and number. It makes at most 20 calls per minute."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now + TRIM_SECONDS)
        self._trim = store.trim(round(settings.dead_max_age_seconds * MICROSECONDS), settings.dead_max_count)
        self._calls = 0

    def step(self, connection: Connection, now: float) -> None:
        """Remove up to 500 of the dead tasks beyond the maximum age or number. Raises ServerError."""
        trimmed = self._unless_refused("trim", lambda: connection.run(self._trim))
        self._calls += 1
        if trimmed is None or not trimmed.more or self._calls == _CALLS_A_TRIM:
            self._calls = 0
            self._next_at = now + TRIM_SECONDS


class LegacyAdoption(Round):
    """The round that takes items from legacy lists. It is never due if no lists are configured."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now if settings.adopts else math.inf)
        self._sources = settings.adopts
        self._keys = tuple(source.key for source in self._sources)
        self._listening = leadership.listening
        self._not_before = now
        self._call = store.adopt_legacy(os.urandom(_NAME_BYTES).hex(), CHUNK, self._sources)

    @property
    def due_at(self) -> float:
        return min(self._next_at, self._not_before) if self._listening.rang else self._next_at

    def step(self, connection: Connection, now: float) -> None:
        """Take a chunk of items from the legacy lists. Raises ServerError."""
        self._listening.rang = False
        self._not_before = now + PAUSE_SECONDS
        adopted = self._unless_refused("adopt_legacy", lambda: connection.run(self._call))
        if adopted is None:
            self._next_at = now + REFUSED_SECONDS
            return
        self._report.adopted_legacy(self._sources, adopted)
        self._listening.wanted = self._keys if adopted.is_leader else ()
        self._next_at = now + seconds_to_next(adopted, is_notified=self._listening.is_notified)


def seconds_to_next(adopted: AdoptedLegacy, *, is_notified: bool) -> float:
    """Return in how many seconds the legacy lists must be read again, given the reply to the last read. They are read
    earlier if a notification arrives."""
    if adopted.more:
        return PAUSE_SECONDS
    if not adopted.is_leader:
        return LEGACY_POLL_SECONDS
    interval = LEGACY_POLL_SECONDS if is_notified else UNNOTIFIED_SECONDS
    if adopted.next_due_us is None:
        return interval
    return min(interval, max(0.0, (adopted.next_due_us - adopted.now_us) / MICROSECONDS))


# How far ahead of their time occurrences are enqueued, so that no task is late even if no poller runs for 5 s.
AHEAD_SECONDS: Final = 8.0
# The round is due this long before the first occurrence that is not enqueued yet. Sweeps report the time of that
# occurrence.
UPCOMING_SECONDS: Final = 6.0
STANDBY_UPCOMING_SECONDS: Final = 3.0
_FULL: Final = "oom"


class ScheduleRound(Round):
    """The round that enqueues the next occurrences of schedules, and removes schedules that no node declares any
    longer.

    Each step processes one schedule. Sweeps report when the round has something to do.
    """

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, leadership: Leadership, now: float
    ) -> None:
        super().__init__(settings, store, report, leadership, now)
        self._schedules = ScheduleStore(store.keys.namespace)
        self._keyring = keyring_of(settings.signing)
        self._upcoming: deque[StoredSchedule] = deque()
        self._listed_at_us = 0
        self._has_more = False

    @property
    def due_at(self) -> float:
        if self._upcoming or self._leadership.undeclared:
            return -math.inf
        return self._leadership.schedule_at - self._upcoming_seconds

    @property
    def _upcoming_seconds(self) -> float:
        return UPCOMING_SECONDS if self._leadership.is_leader else STANDBY_UPCOMING_SECONDS

    def step(self, connection: Connection, now: float) -> None:  # noqa: ARG002 - the signature of all rounds
        """Remove one schedule, enqueue occurrences of one schedule, or list the schedules that are due. Raises
        ServerError."""
        if self._leadership.undeclared:
            self._forget(connection, self._leadership.undeclared[0])
            del self._leadership.undeclared[0]
        elif self._upcoming:
            kept = self._upcoming[0]
            self._advance(connection, kept)
            if self._upcoming:
                self._upcoming.popleft()
        else:
            self._list_upcoming(connection)

    def _forget(self, connection: Connection, name: str) -> None:
        call = self._schedules.forget(name, self._lease_ms * 1000)
        if self._unless_refused("forget", lambda: connection.run(call), name) is RemoveStatus.REMOVED:
            self._report.schedule_removed(name)

    def _list_upcoming(self, connection: Connection) -> None:
        call = self._schedules.upcoming(round(self._upcoming_seconds * MICROSECONDS), SCHEDULES_A_PAGE)
        self._leadership.schedule_at = math.inf  # this round is not due before the next sweep
        reply = self._unless_refused("upcoming", lambda: connection.run(call))
        if reply is not None:
            self._listed_at_us, found = reply
            self._upcoming.extend(found)
            self._has_more = len(found) == SCHEDULES_A_PAGE

    def _advance(self, connection: Connection, kept: StoredSchedule) -> None:
        # Import this here, because a fleet without schedules needs neither time zones nor the cron parser.
        from rota.schedules.occurrences import advance  # noqa: PLC0415
        from rota.schedules.schedule import decode_schedule  # noqa: PLC0415

        try:
            record = read_schedule_record(kept.record)
            if self._keyring is not None:
                self._keyring.verify(record.text, schedule_kind(kept.name))
            schedule = decode_schedule(kept.name, record.text)
        except ValueError as error:
            self._report.schedule_unreadable(kept.name, str(error))
            return
        sign = None if self._keyring is None else self._keyring.sign
        planned = advance(schedule, record, self._listed_at_us, round(AHEAD_SECONDS * MICROSECONDS), sign)
        may_overlap = schedule.overlap == "queue"
        call = self._schedules.advance(
            kept, planned.record, schedule.queue, planned.occurrences, may_overlap=may_overlap
        )
        if self._unless_full(lambda: self._unless_refused("advance", lambda: connection.run(call), kept.name)):
            self._report.schedule_advanced(kept.name, len(planned.occurrences), planned.missed)
            # Many schedules may be due at once, for example at midnight, so list the next schedules now, not after the
            # next sweep.
            if self._has_more:
                self._leadership.schedule_at = -math.inf

    def _unless_full(self, call: Callable[[], bool | None]) -> bool | None:
        """Return the result of the call, or None if the server has no memory left.

        Without memory, nothing can be enqueued, so this round waits for the next sweep. The other rounds continue.
        """
        try:
            return call()
        except PushedBack as error:
            if error.reason != _FULL:
                raise
            self._report.refused(error, "advance")
            self._upcoming.clear()
            return None
