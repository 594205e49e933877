"""The poller's loop: promote a chunk of what is due, do a step of the rounds, rest until there is more to do.

Neither waits for the end of the other: a hundred thousand overdue tasks hold up no sweep, and a hundred lost owners no
task that is due.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.child import life as lives
from rota.child.child_settings import PollerSettings
from rota.child.child_signals import Orphaned, StopSignals, Waiter
from rota.child.slot_texts import Board
from rota.child.slots import Phase
from rota.poller.fleet_walks import Adopting, Auditing, KeyWalk
from rota.poller.poller_bell import Listening, PollerBell
from rota.poller.poller_report import PollerReport
from rota.poller.promotion import NextDue, Promoting, Standby
from rota.poller.rounds import AdoptingClassic, Duty, Round, Sweeping, Trimming
from rota.poller.schedule_round import Scheduling
from rota.protocol.store import Store
from rota.server.address import address_of
from rota.server.connection import Connection, ConnectionOptions
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry import log, log_events
from rota.telemetry.metrics import QueueLabels
from rota.telemetry.recorder import Recorder

CALL_SECONDS: Final = 0.001  # what a call of the rounds may take
BEAT_EVERY_SECONDS: Final = 1.0  # while it waits for an answer; between two calls it sleeps no longer either


class Rounds:
    """Sweep and retire within each second or oftener, enqueue what schedules say, take from classic queues, trim each
    minute, and walk when that is this poller's duty: the first that is due has its step."""

    def __init__(
        self,
        settings: PollerSettings,
        store: Store,
        report: PollerReport,
        clock: Callable[[], float],
        listening: Listening,
    ) -> None:
        self._clock = clock
        now, duty = clock(), Duty(listening)
        kinds = Sweeping, Scheduling, AdoptingClassic, Adopting, KeyWalk, Trimming, Auditing
        self._rounds: tuple[Round, ...] = tuple(kind(settings, store, report, duty, now) for kind in kinds)

    def step(self, connection: Connection) -> NextDue | None:
        """Make one call of what is due, if anything is; returns what it said of due times. Raises ServerError."""
        now = self._clock()
        due = next((each for each in self._rounds if each.due_at <= now), None)
        return None if due is None else due.step(connection, now)

    @property
    def next_at(self) -> float:
        """When the next step is due, by the clock; long ago when one is due now."""
        return min(each.due_at for each in self._rounds)


def run_poller(settings: PollerSettings, life: lives.Life) -> int:
    """Live one life as a poller in this process, in its main thread; returns the exit code."""
    log.configure(settings.log, **log.of_process("poller", settings.server.namespace, life.node, slot=life.slot_number))
    log.adopt(settings.log)
    signals = StopSignals()
    signals.install()
    try:
        return _loop(settings, life, signals).run()
    except Orphaned:
        return lives.EXIT_ORPHANED


def _loop(settings: PollerSettings, life: lives.Life, signals: StopSignals) -> "PollerLoop":
    store = Store(settings.server.namespace)
    recorder = Recorder(life.slot.metrics, label_of_queue=QueueLabels(settings.queues).of)
    waiter = Waiter(signals, life.death_fd, life.slot.beat, BEAT_EVERY_SECONDS)
    report = PollerReport(recorder, life.slot_number, Board(life.slot.spare))
    address = address_of(settings.server)

    def link(purpose: str) -> Link:
        name = f"rota:poller:{life.slot_number}:{purpose}"
        return Link(address, ConnectionOptions(name, wait=waiter.until_ready), recorder)

    listening = Listening()
    return PollerLoop(
        life=life,
        link=link("work"),
        bell=PollerBell(store.keys, link("bell"), signals, life.death_fd, listening),
        waiter=waiter,
        signals=signals,
        promoting=Promoting(Standby(settings.rank), store, report, time.monotonic),
        rounds=Rounds(settings, store, report, time.monotonic, listening),
        rank=settings.rank,
    )


@dataclass(slots=True)
class PollerLoop:
    """One life of a poller. `link` is the connection to work on, the bell has its own. `clock` is monotonic."""

    life: lives.Life
    link: Link
    bell: PollerBell
    waiter: Waiter
    signals: StopSignals
    promoting: Promoting
    rounds: Rounds
    rank: int
    clock: Callable[[], float] = time.monotonic
    _ready: bool = False
    _rested: bool = False

    def run(self) -> int:
        """Work until a stop signal; returns the exit code. Raises Orphaned."""
        while not self.signals.asked:
            self.life.slot.beat()
            try:
                self._work()
            except ServerError as error:
                self.promoting.lost()
                self.bell.let_go()
                self.waiter.pause(self.link.failed(error))
                continue
            self.link.worked()
            self._rest()
        self._show(Phase.DRAINING)
        return lives.EXIT_DRAINED

    def _work(self) -> None:
        connection = self.link.connection()
        has_promoted = False
        if self.promoting.due_at() <= self.clock():
            has_promoted = not self.promoting.step(connection, rested=self._rested)
        self._rested = False
        # After each promotion, or tasks due one after another would hold them up.
        if has_promoted or not self._is_due_soon():
            next_due = self.rounds.step(connection)
            if next_due is not None:
                self.promoting.next_due = next_due
        if not self._ready:
            self._ready = True
            self._show(Phase.IDLE)
            log.logger().info(log_events.POLLER_STARTED, rank=self.rank)

    def _is_due_soon(self) -> bool:
        """Whether a promotion is due before a call of the rounds would be over: that one can wait."""
        return self.promoting.due_at() - self.clock() < CALL_SECONDS

    def _rest(self) -> None:
        due_at = self.promoting.due_at()
        seconds = (due_at if self._is_due_soon() else min(due_at, self.rounds.next_at)) - self.clock()
        if self.bell.rest(max(0.0, seconds)):
            self.promoting.heard()
        else:
            self._rested = seconds > 0

    def _show(self, phase: Phase) -> None:
        self.life.slot.phase = phase
        self.life.ring_master()
