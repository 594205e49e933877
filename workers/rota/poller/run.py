"""A poller's life around its loop."""

import os
import time
from typing import Final

from rota.child.life import EXIT_ORPHANED, Life
from rota.child.settings import PollerSettings
from rota.child.signals import StopSignals
from rota.child.wait import Orphaned, Waiter
from rota.poller.bell import PollerBell
from rota.poller.loop import PollerLoop, PollerTools
from rota.poller.promoting import Promoting
from rota.poller.report import PollerReport
from rota.poller.rest import Standby
from rota.poller.rounds import Rounds
from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.connection import ConnectionOptions
from rota.server.link import Link
from rota.telemetry import log
from rota.telemetry.recorder import Recorder

BEAT_EVERY_SECONDS: Final = 1.0  # while it waits for an answer; between two calls it sleeps no longer either


def run_poller(settings: PollerSettings, life: Life) -> int:
    """Live one life as a poller in this process, in its main thread; answers the exit code."""
    log.configure(settings.log, role="poller", slot=life.slot_number, pid=os.getpid())
    log.adopt_foreign(settings.log)
    signals = StopSignals()
    signals.install()
    try:
        return PollerLoop(_tools(settings, life, signals)).run()
    except Orphaned:
        return EXIT_ORPHANED


def _tools(settings: PollerSettings, life: Life, signals: StopSignals) -> PollerTools:
    store = Store(settings.server.namespace)
    recorder = Recorder(life.slot.metrics)
    waiter = Waiter(signals, life.death_fd, life.slot.beat, BEAT_EVERY_SECONDS)
    report = PollerReport(recorder, life.slot_number)
    address = parse_address(settings.server.redis_url)

    def link(purpose: str) -> Link:
        name = f"rota:poller:{life.slot_number}:{purpose}"
        return Link(address, ConnectionOptions(name, wait=waiter.until_ready), recorder)

    return PollerTools(
        life=life,
        link=link("work"),
        bell=PollerBell(store.keys, link("bell"), signals, life.death_fd),
        waiter=waiter,
        signals=signals,
        promoting=Promoting(Standby(settings.rank), store, report, time.monotonic),
        rounds=Rounds(settings, store, report, time.monotonic),
        rank=settings.rank,
    )
