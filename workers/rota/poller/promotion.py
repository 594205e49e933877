"""Promotion: when the next call is due, and what was learned from the last."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.poller.poller_report import PollerReport
from rota.protocol.entry import MICROSECONDS
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import Refused

# In a burst a task costs 4 us on Redis 7.0 and 7 us on Valkey: the turns of workers wait for 1.4 ms.
CHUNK: Final = 200
LONGEST_SECONDS: Final = 1.0  # a bare ZADD rings nobody: look at least this often
STANDBY_SECONDS: Final = 0.003
_AIM_SECONDS: Final = 0.00005
_MOST_LATENCY_SECONDS: Final = 0.001
_OUTLIER_SECONDS: Final = 0.0005
_LEARNED_SHARE: Final = 1 / 8
LOOK_SECONDS: Final = 0.0005  # what a look ahead takes, before the first
_MOST_LOOK_SECONDS: Final = 0.01  # one that took longer met a busy server
MARGIN_SECONDS: Final = 0.0004  # of it a timer takes 0.1 to 0.2 ms, and what follows from the answer 0.1 ms


@dataclass(frozen=True, slots=True)
class NextDue:
    """The answer of a look at the delayed set: the next due time, and Redis time in a call `sent_at` (monotonic).

    Times are reckoned from the sending, so a call that is sent at a due time, and takes as long to arrive as that one
    did, arrives when it is due.
    """

    next_due_us: int | None
    now_us: int
    sent_at: float

    @property
    def due_at(self) -> float:
        """The next due time (monotonic)."""
        if self.next_due_us is None:
            return math.inf
        return self.sent_at + (self.next_due_us - self.now_us) / MICROSECONDS

    @property
    def look_again_at(self) -> float:
        """When it is too old (monotonic)."""
        return self.sent_at + LONGEST_SECONDS


UNKNOWN_DUE: Final = NextDue(None, 0, -math.inf)
"""Before the first look, and when the last is worth nothing: it is time for one."""


@dataclass(slots=True)
class Standby:
    """Stand-bys go a little later than the first poller, `rank` x 3 ms, and find its work done.

    A doorbell token wakes one poller only. That one promotes without this delay what is due at `heard_due_us`, the next
    due time that it then saw.
    """

    rank: int
    heard_due_us: int | None = None

    def seconds(self, next_due_us: int | None) -> float:
        """How much later than due to go."""
        if next_due_us is not None and next_due_us == self.heard_due_us:
            return 0.0
        return self.rank * STANDBY_SECONDS


@dataclass(slots=True)
class WakeLatency:
    """How late a call after a rest arrives, learned from earlier ones: a rest is ended so much earlier than planned.

    A timer ends 0.1 to 0.3 ms late, and a server that slept is slower to look than one that was just asked. A call that
    arrives early moves nothing and is repeated, which costs 0.2 ms: so the aim is 0.05 ms after the due time, and what
    came later than 0.5 ms met a busy server and counts as no more than that.
    """

    seconds: float = 0.0

    def arrived(self, late_seconds: float) -> None:
        """A call made right after a rest arrived so late by Redis time; below 0, early."""
        late = min(max(late_seconds, -_OUTLIER_SECONDS), _OUTLIER_SECONDS)
        learned = self.seconds + (late - _AIM_SECONDS) * _LEARNED_SHARE
        self.seconds = min(max(learned, 0.0), _MOST_LATENCY_SECONDS)


class Promoting:
    """A chunk of what is due, when it is due; a look at what is next, when a bell rang or the last was a second ago.

    A server that slept takes the script three times as long as one that was just asked. So after a rest the same call
    is made ahead of the due time: it moves nothing, and its answer is back when the promotion is to be sent. How long
    it takes is learned (`_look_seconds`).

    `next_due` is set by whoever looked at what is next.
    """

    def __init__(self, standby: Standby, store: Store, report: PollerReport, clock: Callable[[], float]) -> None:
        self.next_due = UNKNOWN_DUE
        self._standby = standby
        self._report = report
        self._clock = clock
        self._call = store.promote(CHUNK)
        self._latency = WakeLatency()
        self._look_seconds = LOOK_SECONDS
        self._rang = False

    def due_at(self) -> float:
        """When the next call is due (monotonic); long ago when one is due now."""
        return -math.inf if self._rang else min(self._set_out_at(), self.next_due.look_again_at)

    def heard(self) -> None:
        """The bell rang, or may have: something is due earlier than is known."""
        self._rang = True

    def lost(self) -> None:
        """The connection is gone, and what was known is old."""
        self.next_due = UNKNOWN_DUE

    def step(self, connection: Connection, *, rested: bool) -> bool:
        """Promote a chunk; `rested` when a rest has just ended for it. Returns whether it was only a look ahead. Raises
        ServerError."""
        sent_at = self._clock()
        try:
            promoted = connection.run(self._call)
        except Refused as error:
            self._report.refused(error, call="promote")
            self._rang, self.next_due = False, NextDue(None, 0, sent_at)
            return False
        seen_at, late_seconds, is_ahead = self._clock(), self._late_seconds(promoted.now_us), self._is_ahead()
        if rested and self._set_out_at() <= sent_at:
            self._learn(late_seconds, seen_at - sent_at)
        self.next_due = NextDue(promoted.next_due_us, promoted.now_us, sent_at)
        if self._rang:
            self._rang = False
            self._standby.heard_due_us = promoted.next_due_us
        self._report.promoted(promoted, seen_at - sent_at)
        return is_ahead and late_seconds < 0

    def _late_seconds(self, now_us: int) -> float:
        due_us = self.next_due.next_due_us or now_us
        return (now_us - due_us) / MICROSECONDS - self._standby.seconds(due_us)

    def _learn(self, late_seconds: float, took_seconds: float) -> None:
        if self._is_ahead():
            more = min(took_seconds, _MOST_LOOK_SECONDS) - self._look_seconds
            self._look_seconds += more * _LEARNED_SHARE
        else:
            self._latency.arrived(late_seconds)

    def _planned_at(self) -> float:
        return self.next_due.due_at + self._standby.seconds(self.next_due.next_due_us)

    def _is_ahead(self) -> bool:
        """Whether the next call is a look ahead: the last one was long ago."""
        return self._planned_at() - self.next_due.sent_at > 2 * (self._look_seconds + MARGIN_SECONDS)

    def _set_out_at(self) -> float:
        look_seconds = self._look_seconds + MARGIN_SECONDS if self._is_ahead() else 0.0
        return self._planned_at() - self._latency.seconds - look_seconds
