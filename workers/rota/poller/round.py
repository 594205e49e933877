"""What all rounds of a poller have in common, and what its sweeps tell them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from rota.child.settings import PollerSettings
from rota.poller.listening import Listening
from rota.poller.promoting import NextDue
from rota.poller.report import PollerReport
from rota.protocol.entry import MICROSECONDS
from rota.protocol.replies import Swept
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import Refused

T = TypeVar("T")


@dataclass(slots=True)
class Duty:
    """What the last sweep said: whether this is the poller that walks for the fleet, and how many items of the delayed
    set are without a ticket. `left` of these a search did not find: they are ours, with a ticket that was lost.
    `listening`: for classic queues, which is another duty.
    `schedule_at`: when a schedule has an occurrence that nobody has enqueued (monotonic), `inf` for none or when that
    is not known. `undeclared`: schedules that are to be forgotten."""

    listening: Listening
    walks: bool = False
    untold: int = 0
    left: int = 0
    schedule_at: float = math.inf
    undeclared: list[str] = field(default_factory=list)

    def told(self, swept: Swept, sent_at: float) -> None:
        self.walks, self.untold = swept.walks, swept.untold
        self.left = min(self.left, self.untold)
        following = swept.next_schedule_us
        self.schedule_at = math.inf if following is None else sent_at + (following - swept.now_us) / MICROSECONDS
        self.undeclared = list(swept.undeclared)

    def searched(self, begun_with: int, found: int) -> None:
        """A search through the delayed set is over."""
        self.untold = self.left = max(0, begun_with - found)


class Round:
    """Work that recurs, one call a step."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, duty: Duty, now: float) -> None:
        self._settings = settings
        self._lease_ms = round(settings.lease_seconds * 1000)
        self._store = store
        self._report = report
        self._duty = duty
        self._next_at = now

    @property
    def due_at(self) -> float:
        """When its next step is due; in the past in the middle of a round."""
        return self._next_at

    def step(self, connection: Connection, now: float) -> NextDue | None:
        """Make one call; returns what it said of due times, if anything. Raises ServerError."""
        raise NotImplementedError

    def _unless_refused(self, name: str, call: Callable[[], T], owner: str = "") -> T | None:
        try:
            return call()
        except Refused as error:
            self._report.refused(error, name, owner)
            return None
