"""A simulated poller. It is the product's poller loop, except that it does not block while it rests. So one process
runs hundreds of pollers.
"""

import asyncio
import time
from dataclasses import dataclass, field

from rota.child.child_process import ChildProcess, StopSignals, Waiter
from rota.child.child_settings import PollerSettings
from rota.child.slot_memory import SharedText
from rota.poller.poller_bell import BellState, PollerBell
from rota.poller.poller_loop import PollerLoop, Promotion, Rounds, Standby
from rota.poller.poller_report import PollerReport
from rota.protocol.store import Store
from rota.server.address import Address
from rota.server.connection import ConnectionOptions
from rota.server.link import Link
from rota.telemetry.recorder import Recorder


@dataclass(slots=True, kw_only=True)
class SimulatedPoller(PollerLoop):
    """A poller whose rests are timers of an event loop. `bell_link` is the connection of its bell."""

    bell_link: Link
    listening: BellState
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _watched: int | None = field(default=None, init=False)  # the descriptor of the bell's connection

    def start(self) -> None:
        """Make the first calls, and begin to rest. Raises ServerError."""
        self._advance()

    def _advance(self) -> None:
        self._work()
        self._rest_briefly()
        seconds = max(0.0, self._seconds_to_rest())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._rested_until_due, seconds > 0)

    def _rest_briefly(self) -> None:
        loop = asyncio.get_running_loop()
        if self.listening.is_reserve and self._watched is not None:
            loop.remove_reader(self._watched)
            self._watched = None
        if self.bell.rest(0.0):
            self.promoting.bell_rang()
        if not self.listening.is_reserve and self._watched is None:
            self._watched = self.bell_link.connection(is_parked=True).fileno()
            loop.add_reader(self._watched, self._woken)

    def _rested_until_due(self, rested: bool) -> None:
        self._rested = rested
        self._advance()

    def _woken(self) -> None:
        """Handle data on the connection of the bell: a token, or a notification that a key has changed."""
        if self._timer is not None:
            self._timer.cancel()
        self._advance()


def simulated_poller(
    address: Address, settings: PollerSettings, process: ChildProcess, signals: StopSignals
) -> SimulatedPoller:
    """Return a poller that has not connected yet. It is put together as the product's poller is."""
    store = Store(settings.server.namespace)
    recorder = Recorder(process.slot.metrics)
    waiter = Waiter(signals, process.death_fd, process.slot.heartbeat, 1.0)
    report = PollerReport(recorder, process.slot_number, SharedText(process.slot.spare))
    options = ConnectionOptions("rota:poller", wait=waiter.until_ready)
    bell_link = Link(address, options, recorder)
    listening = BellState()
    return SimulatedPoller(
        process=process,
        link=Link(address, options, recorder),
        bell=PollerBell(store.keys, bell_link, signals, process.death_fd, listening),
        waiter=waiter,
        signals=signals,
        promoting=Promotion(Standby(settings.rank), store, report, time.monotonic),
        rounds=Rounds(settings, store, report, time.monotonic, listening),
        rank=settings.rank,
        bell_link=bell_link,
        listening=listening,
    )
