"""The round that takes from classic queues: from lists what is there, from sorted sets what is due.

Every poller of the fleet looks now and then. One of them has the duty to listen: it is told of each change, and goes
when something is due. Who has it is said by the call that takes: when that poller dies, another has it within a second.
"""

import math
import os
from typing import Final

from rota.child.settings import PollerSettings
from rota.poller.report import PollerReport
from rota.poller.round import Duty, Round
from rota.protocol.entry import MICROSECONDS
from rota.protocol.replies import AdoptedClassic
from rota.protocol.store import Store
from rota.server.connection import Connection

CHUNK: Final = 125  # an item costs the server 11 us: turns wait for 1.4 ms, as behind a chunk of promotions
PAUSE_SECONDS: Final = 0.003  # at least from one call to the next, so that the other rounds have their turn in a flood
LOOK_SECONDS: Final = 0.25  # by every poller: it finds what one that was killed had heard of
DEAF_SECONDS: Final = 0.04  # by the one that should listen where the server does not tell it
REFUSED_SECONDS: Final = 1.0
_NAME_BYTES: Final = 8


class AdoptingClassic(Round):
    """Never due where nothing is to be adopted."""

    def __init__(self, settings: PollerSettings, store: Store, report: PollerReport, duty: Duty, now: float) -> None:
        super().__init__(settings, store, report, duty, now if settings.adopts else math.inf)
        self._sources = settings.adopts
        self._keys = tuple(source.key for source in self._sources)
        self._listening = duty.listening
        self._not_before = now
        self._call = store.adopt_classic(os.urandom(_NAME_BYTES).hex(), CHUNK, self._sources)

    @property
    def due_at(self) -> float:
        return min(self._next_at, self._not_before) if self._listening.rang else self._next_at

    def step(self, connection: Connection, now: float) -> None:
        """Take a chunk. Raises ServerError."""
        self._listening.rang, self._not_before = False, now + PAUSE_SECONDS
        adopted = self._unless_refused("adopt_classic", lambda: connection.run(self._call))
        if adopted is None:
            self._next_at = now + REFUSED_SECONDS
            return
        self._report.adopted_classic(self._sources, adopted)
        self._listening.wanted = self._keys if adopted.on_duty else ()
        self._next_at = now + seconds_to_next(adopted, hears=self._listening.hears)


def seconds_to_next(adopted: AdoptedClassic, *, hears: bool) -> float:
    """How long after a call the next one is made, if nothing rings."""
    if adopted.more:
        return PAUSE_SECONDS
    if not adopted.on_duty:
        return LOOK_SECONDS
    look = LOOK_SECONDS if hears else DEAF_SECONDS
    if adopted.next_due_us is None:
        return look
    return min(look, max(0.0, (adopted.next_due_us - adopted.now_us) / MICROSECONDS))
