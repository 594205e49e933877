"""Promotion: when the next call is due, and what was learned from the last."""

import math
from collections.abc import Callable
from typing import Final

from rota.poller.report import PollerReport
from rota.poller.rest import NO_OUTLOOK, Lead, Outlook, Standby
from rota.protocol.entry import MICROSECONDS
from rota.protocol.replies import Promoted
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import Refused

# In a burst a task costs 4 us on Redis 7.0 and 7 us on Valkey: the turns of workers wait for 1.4 ms.
CHUNK: Final = 200


class Promoting:
    """A chunk of what is due, when it is due; a look at what is next, when a bell rang or nobody told for a second."""

    def __init__(self, standby: Standby, store: Store, report: PollerReport, clock: Callable[[], float]) -> None:
        self._standby = standby
        self._report = report
        self._clock = clock
        self._call = store.promote(CHUNK)
        self._lead = Lead()
        self._outlook = NO_OUTLOOK
        self._rang = False

    def due_at(self) -> float:
        """When the next call is due (monotonic); long ago when one is due now."""
        return -math.inf if self._rang else min(self._set_out_at(), self._outlook.look_again_at)

    def heard(self) -> None:
        """The bell rang, or may have: something is due earlier than is known."""
        self._rang = True

    def told(self, outlook: Outlook) -> None:
        """Somebody else looked at what is next."""
        self._outlook = outlook

    def lost(self) -> None:
        """The connection is gone, and what was known is old."""
        self._outlook = NO_OUTLOOK

    def step(self, connection: Connection, *, rested: bool) -> None:
        """Promote a chunk; `rested` when a rest has just ended for it. Raises ServerError."""
        sent_at = self._clock()
        try:
            promoted = connection.run(self._call)
        except Refused as error:
            self._report.refused(error, call="promote")
            self._rang, self._outlook = False, Outlook(None, 0, sent_at)
            return
        seen_at = self._clock()
        if rested and self._set_out_at() <= sent_at:
            self._lead.arrived(self._late_seconds(promoted.now_us))
        self._take(promoted, sent_at)
        self._report.promoted(promoted, seen_at - sent_at)

    def _late_seconds(self, now_us: int) -> float:
        due_us = self._outlook.next_due_us or now_us
        return (now_us - due_us) / MICROSECONDS - self._standby.seconds(due_us)

    def _take(self, promoted: Promoted, sent_at: float) -> None:
        self._outlook = Outlook(promoted.next_due_us, promoted.now_us, sent_at)
        if self._rang:
            self._rang = False
            self._standby.heard(promoted.next_due_us)

    def _set_out_at(self) -> float:
        return self._outlook.due_at + self._standby.seconds(self._outlook.next_due_us) - self._lead.seconds
