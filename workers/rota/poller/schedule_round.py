"""The round that puts occurrences of schedules into the delayed set, a little ahead of their time.

From there they start as any other delayed task, however late the pollers are by then. Each poller may do it: the
script takes what one of them has worked out from the record as it stands, and the others find another. So that they do
not all work for nothing, the one that walks for the fleet goes first, and the others wait for a while longer.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from rota.child.child_settings import PollerSettings
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import Duty, Round
from rota.protocol.entry import MICROSECONDS
from rota.protocol.schedule_store import SCHEDULES_A_PAGE, Kept, RemoveWord, ScheduleStore, read_record
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import PushedBack

AHEAD_SECONDS: Final = 8.0  # what is enqueued: pollers may all be away for five seconds, and nothing is late
LOOK_SECONDS: Final = 6.0  # before the first occurrence that is not enqueued; a sweep tells of it each 0.9 s
STANDBY_LOOK_SECONDS: Final = 3.0
_FULL: Final = "oom"


class Scheduling(Round):
    """What a sweep told of schedules: those that nobody declares are forgotten, and those with an occurrence soon have
    it enqueued, one a step."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, duty: Duty, now: float) -> None:
        super().__init__(settings, store, report, duty, now)
        self._schedules = ScheduleStore(store.keys.namespace)
        self._upcoming: deque[Kept] = deque()
        self._looked_at_us = 0
        self._has_more = False

    @property
    def due_at(self) -> float:
        if self._upcoming or self._duty.undeclared:
            return -math.inf
        return self._duty.schedule_at - self._look_seconds

    @property
    def _look_seconds(self) -> float:
        return LOOK_SECONDS if self._duty.walks else STANDBY_LOOK_SECONDS

    def step(self, connection: Connection, now: float) -> None:  # noqa: ARG002 - the signature of all rounds
        """Forget a schedule, or enqueue occurrences of one, or look which there are. Raises ServerError."""
        if self._duty.undeclared:
            self._forget(connection, self._duty.undeclared[0])
            del self._duty.undeclared[0]
        elif self._upcoming:
            kept = self._upcoming[0]
            self._advance(connection, kept)
            if self._upcoming:
                self._upcoming.popleft()
        else:
            self._look(connection)

    def _forget(self, connection: Connection, name: str) -> None:
        call = self._schedules.forget(name, self._lease_ms * 1000)
        if self._unless_refused("forget", lambda: connection.run(call), name) is RemoveWord.REMOVED:
            self._report.schedule_removed(name)

    def _look(self, connection: Connection) -> None:
        call = self._schedules.upcoming(round(self._look_seconds * MICROSECONDS), SCHEDULES_A_PAGE)
        self._duty.schedule_at = math.inf  # until the next sweep
        answer = self._unless_refused("upcoming", lambda: connection.run(call))
        if answer is not None:
            self._looked_at_us, found = answer
            self._upcoming.extend(found)
            self._has_more = len(found) == SCHEDULES_A_PAGE

    def _advance(self, connection: Connection, kept: Kept) -> None:
        # Imported only here: a fleet without schedules does without time zones and what reads expressions.
        from rota.schedules.occurrences import advance  # noqa: PLC0415
        from rota.schedules.schedule import decode_schedule  # noqa: PLC0415

        try:
            record = read_record(kept.record)
            schedule = decode_schedule(kept.name, record.text)
        except ValueError as error:
            self._report.schedule_unreadable(kept.name, str(error))
            return
        planned = advance(schedule, record, self._looked_at_us, round(AHEAD_SECONDS * MICROSECONDS))
        may_overlap = schedule.overlap == "queue"
        call = self._schedules.advance(
            kept, planned.record, schedule.queue, planned.occurrences, may_overlap=may_overlap
        )
        if self._unless_full(lambda: self._unless_refused("advance", lambda: connection.run(call), kept.name)):
            self._report.schedule_advanced(kept.name, len(planned.occurrences), planned.missed)
            if self._has_more:  # as at midnight: the rest follows at once, and is not 500 a sweep
                self._duty.schedule_at = -math.inf

    def _unless_full(self, call: Callable[[], bool | None]) -> bool | None:
        """A full server takes nothing new, and all else goes on: this is left until the next sweep."""
        try:
            return call()
        except PushedBack as error:
            if error.reason != _FULL:
                raise
            self._report.refused(error, "advance")
            self._upcoming.clear()
            return None
