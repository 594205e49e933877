"""The poller's other rounds, in steps of one call each, so that promotions go on between any two of them."""

from collections.abc import Callable
from typing import Protocol

from rota.child.settings import PollerSettings
from rota.poller.orphans import Orphans
from rota.poller.report import PollerReport
from rota.poller.rest import Outlook
from rota.poller.sweeping import Sweeping
from rota.poller.trimming import Trimming
from rota.protocol.store import Store
from rota.server.connection import Connection


class Round(Protocol):
    """One of them, with a rhythm of its own. What a step could not do is due again; what the server refused is
    reported and left out until its next time, so that it holds up nothing else."""

    def due_at(self) -> float:
        """When its next step is due (monotonic); long ago in the middle of a round."""

    def step(self, connection: Connection, now: float) -> Outlook | None:
        """Make one call; answers what it told of due times, if anything. Raises ServerError."""


class Rounds:
    """Sweep and retire within each second or oftener, look for orphans each lease, trim each minute: the first
    that is due has its step. `clock` is monotonic."""

    def __init__(
        self, settings: PollerSettings, store: Store, report: PollerReport, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        now = clock()
        self._rounds: tuple[Round, ...] = (
            Sweeping(settings, store, report, now),
            Orphans(settings, store, report, now),
            Trimming(settings, store, report, now),
        )

    def step(self, connection: Connection) -> Outlook | None:
        """Make one call of what is due, if anything is; answers what it told of due times. Raises ServerError."""
        now = self._clock()
        for each in self._rounds:
            if each.due_at() <= now:
                return each.step(connection, now)
        return None

    @property
    def next_at(self) -> float:
        """When the next step is due, by the clock; long ago when one is due now."""
        return min(each.due_at() for each in self._rounds)
