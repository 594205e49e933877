"""The loop of a poller, which promotes a chunk of due tasks, takes a step of the rounds, and sleeps until the next call
is due.

Promotions and rounds alternate in small steps. So a hundred thousand overdue tasks do not delay a sweep, and a hundred
lost owners do not delay a due task. `Promotion` stores when its next call is due, and learns from earlier calls how
much earlier the call has to be sent.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.child import child_process
from rota.child.child_process import Orphaned, StopSignals, Waiter
from rota.child.child_settings import PollerSettings
from rota.child.slot_memory import SharedText
from rota.child.slots import Phase
from rota.poller.fleet_scans import AuditScan, KeyScan, ScheduledAdoption
from rota.poller.poller_bell import BellState, PollerBell
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import (
    UNKNOWN_DUE,
    Leadership,
    LegacyAdoption,
    NextDue,
    Round,
    ScheduleRound,
    SweepRound,
    TrimRound,
)
from rota.protocol.entry import MICROSECONDS
from rota.protocol.store import Store
from rota.server.address import address_of
from rota.server.connection import Connection, ConnectionOptions
from rota.server.link import Link
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import log, log_events
from rota.telemetry.metrics import QueueLabels
from rota.telemetry.recorder import Recorder

CALL_SECONDS: Final = 0.001  # the longest time that one call of a round should take
HEARTBEAT_SECONDS: Final = 1.0  # longest time between two heartbeats during a wait, and longest sleep between two calls
# Promoting one of many due tasks takes 4 us on Redis 7.0 and 7 us on Valkey, so a chunk delays the turns of workers by
# up to 1.4 ms.
CHUNK: Final = 200
STANDBY_SECONDS: Final = 0.003
_AIM_SECONDS: Final = 0.00005
_MAX_LATENCY_SECONDS: Final = 0.001
_OUTLIER_SECONDS: Final = 0.0005
_LEARNED_SHARE: Final = 1 / 8
EARLY_CALL_SECONDS: Final = 0.0005  # assumed duration of an early call until the first one has been measured
# Longest duration to learn from; if an early call takes longer, the server was busy.
_MAX_EARLY_CALL_SECONDS: Final = 0.01
# The time between the reply to the early call and the promotion. The timer takes 0.1 to 0.2 ms of it, and processing a
# reply 0.1 ms.
MARGIN_SECONDS: Final = 0.0004


@dataclass(slots=True)
class Standby:
    """The delay of a stand-by poller. The poller with the rank n acts n x 3 ms after the first poller, which has
    usually done the work by then.

    A doorbell token wakes only one poller, which must then act without the delay. `woken_due_us` is the next due time
    that this poller read when a token woke it. The poller promotes the tasks that are due at that time without the
    delay.
    """

    rank: int
    woken_due_us: int | None = None

    def seconds(self, next_due_us: int | None) -> float:
        """Return how many seconds after `next_due_us` this poller promotes the tasks that are due then. This is 0 for
        the first poller, and for a poller that read this due time when a doorbell token woke it."""
        if next_due_us is not None and next_due_us == self.woken_due_us:
            return 0.0
        return self.rank * STANDBY_SECONDS


@dataclass(slots=True)
class WakeLatency:
    """The delay with which a call after a sleep arrives at the server, learned from earlier calls. The sleep before the
    next call ends earlier by this delay.

    A timer ends 0.1 to 0.3 ms late, and a server that was idle replies more slowly than one that was just active. A
    call that arrives too early moves nothing and has to be repeated, which costs 0.2 ms. Therefore the poller aims at
    0.05 ms after the due time. If a call arrives more than 0.5 ms late, the server was busy, so the delay counts as 0.5
    ms.
    """

    seconds: float = 0.0

    def arrived(self, late_seconds: float) -> None:
        """Learn how late, by Redis time, a call right after a sleep arrived at the server. A negative number means that
        the call was early."""
        late = min(max(late_seconds, -_OUTLIER_SECONDS), _OUTLIER_SECONDS)
        learned = self.seconds + (late - _AIM_SECONDS) * _LEARNED_SHARE
        self.seconds = min(max(learned, 0.0), _MAX_LATENCY_SECONDS)


class Promotion:
    """The promotion of tasks when they are due, one chunk at a time. While no task is due, the poller still makes a
    call once per second, and whenever the bell rings, to read the next due time.

    An idle server takes three times as long for the script as a server that was just active. So after a long sleep, the
    poller makes the same call once before the due time. This early call moves nothing but makes the server active, and
    its reply arrives before the promotion has to be sent. The poller learns how long the early call takes
    (`_early_call_seconds`). Other code sets `next_due` if it has read the next due time from the server.
    """

    def __init__(self, standby: Standby, store: Store, report: PollerReport, clock: Callable[[], float]) -> None:
        self.next_due = UNKNOWN_DUE
        self._standby = standby
        self._report = report
        self._clock = clock
        self._call = store.promote(CHUNK)
        self._latency = WakeLatency()
        self._early_call_seconds = EARLY_CALL_SECONDS
        self._rang = False

    def due_at(self) -> float:
        """Return the time at which the next call is due (monotonic). If a call is due now, the time is in the past."""
        return -math.inf if self._rang else min(self._send_at(), self.next_due.stale_at)

    def bell_rang(self) -> None:
        """Record that the bell rang, or may have rung, so that a task may be due earlier than the known due time."""
        self._rang = True

    def connection_lost(self) -> None:
        """Record that the connection was lost, so that the known due time is outdated."""
        self.next_due = UNKNOWN_DUE

    def step(self, connection: Connection, *, rested: bool) -> bool:
        """Promote a chunk of due tasks. Returns True if the call was only an early call, which moves nothing.

        `rested` must be true if the poller has just slept until this call. Raises ServerError.
        """
        sent_at = self._clock()
        try:
            promoted = connection.run(self._call)
        except Refused as error:
            self._report.refused(error, call="promote")
            self._rang = False
            self.next_due = NextDue(None, 0, sent_at)
            return False
        seen_at = self._clock()
        late_seconds = self._late_seconds(promoted.now_us)
        is_early = self._is_early_call()
        if rested and self._send_at() <= sent_at:
            self._learn(late_seconds, seen_at - sent_at)
        self.next_due = NextDue(promoted.next_due_us, promoted.now_us, sent_at)
        if self._rang:
            self._rang = False
            self._standby.woken_due_us = promoted.next_due_us
        self._report.promoted(promoted, seen_at - sent_at)
        return is_early and late_seconds < 0

    def _late_seconds(self, now_us: int) -> float:
        due_us = self.next_due.next_due_us or now_us
        return (now_us - due_us) / MICROSECONDS - self._standby.seconds(due_us)

    def _learn(self, late_seconds: float, took_seconds: float) -> None:
        if self._is_early_call():
            more = min(took_seconds, _MAX_EARLY_CALL_SECONDS) - self._early_call_seconds
            self._early_call_seconds += more * _LEARNED_SHARE
        else:
            self._latency.arrived(late_seconds)

    def _planned_at(self) -> float:
        return self.next_due.due_at + self._standby.seconds(self.next_due.next_due_us)

    def _is_early_call(self) -> bool:
        """Whether the next call should only be an early call: see the class. It should if the next due time is long
        after the last call, so that the server may be idle by then."""
        return self._planned_at() - self.next_due.sent_at > 2 * (self._early_call_seconds + MARGIN_SECONDS)

    def _send_at(self) -> float:
        early_call_seconds = self._early_call_seconds + MARGIN_SECONDS if self._is_early_call() else 0.0
        return self._planned_at() - self._latency.seconds - early_call_seconds


class Rounds:
    """The rounds of a poller. They check for work at least once per second. The check is a sweep or, while the fleet is
    idle, a cheaper command. The rounds reap owners, enqueue the occurrences of schedules, take items from legacy lists,
    trim the dead set once per minute, and scan if this poller is the leader. Each step makes one call, for the first
    round that is due."""

    def __init__(
        self,
        settings: PollerSettings,
        store: Store,
        report: PollerReport,
        clock: Callable[[], float],
        listening: BellState,
    ) -> None:
        self._clock = clock
        self._listening = listening
        now = clock()
        leadership = Leadership(listening)
        kinds = SweepRound, ScheduleRound, LegacyAdoption, ScheduledAdoption, KeyScan, TrimRound, AuditScan
        self._rounds: tuple[Round, ...] = tuple(kind(settings, store, report, leadership, now) for kind in kinds)

    def step(self, connection: Connection) -> NextDue | None:
        """Make one call for the first round that is due, if there is one. Returns the next due time in the delayed set
        if the reply contained it.

        Raises ServerError.
        """
        now = self._clock()
        due = next((each for each in self._duties if each.due_at <= now), None)
        return None if due is None else due.step(connection, now)

    @property
    def next_at(self) -> float:
        """The time at which the next step is due (monotonic). If a step is due now, the time is in the past."""
        return min(each.due_at for each in self._duties)

    @property
    def _duties(self) -> tuple[Round, ...]:
        """The rounds that this poller makes. A reserve makes only the first one, which checks whether it should
        sweep."""
        return self._rounds[:1] if self._listening.is_reserve else self._rounds


def run_poller(settings: PollerSettings, process: child_process.ChildProcess) -> int:
    """Run a poller in this process, in its main thread, and return the exit code."""
    log.configure(
        settings.log, **log.of_process("poller", settings.server.namespace, process.node, slot=process.slot_number)
    )
    log.adopt(settings.log)
    signals = StopSignals()
    signals.install()
    try:
        return _loop(settings, process, signals).run()
    except Orphaned:
        return child_process.EXIT_ORPHANED


def _loop(settings: PollerSettings, process: child_process.ChildProcess, signals: StopSignals) -> "PollerLoop":
    store = Store(settings.server.namespace)
    recorder = Recorder(process.slot.metrics, label_of_queue=QueueLabels(settings.queues).of)
    waiter = Waiter(signals, process.death_fd, process.slot.heartbeat, HEARTBEAT_SECONDS)
    report = PollerReport(recorder, process.slot_number, SharedText(process.slot.spare))
    address = address_of(settings.server)

    def link(purpose: str) -> Link:
        name = f"rota:poller:{process.slot_number}:{purpose}"
        return Link(address, ConnectionOptions(name, wait=waiter.until_ready), recorder)

    listening = BellState()
    return PollerLoop(
        process=process,
        link=link("work"),
        bell=PollerBell(store.keys, link("bell"), signals, process.death_fd, listening),
        waiter=waiter,
        signals=signals,
        promoting=Promotion(Standby(settings.rank), store, report, time.monotonic),
        rounds=Rounds(settings, store, report, time.monotonic, listening),
        rank=settings.rank,
    )


@dataclass(slots=True)
class PollerLoop:
    """The loop of one poller process, from its start to its exit code."""

    process: child_process.ChildProcess
    link: Link  # the connection for all calls except BLPOP
    bell: PollerBell  # the doorbell, on a separate connection
    waiter: Waiter
    signals: StopSignals
    promoting: Promotion
    rounds: Rounds
    rank: int  # number of the poller on its node, from 0
    clock: Callable[[], float] = time.monotonic  # returns monotonic time
    _ready: bool = False  # whether a call to Redis has succeeded since the start
    _rested: bool = False  # whether the poller has just slept until a promotion was due

    def run(self) -> int:
        """Work until a stop signal, and return the exit code. Raises Orphaned if the master dies."""
        while not self.signals.stop_requested:
            self.process.slot.heartbeat()
            try:
                self._work()
            except ServerError as error:
                self.promoting.connection_lost()
                self.bell.disconnect()
                self.waiter.pause(self.link.failed(error))
                continue
            self.link.succeeded()
            self._rest()
        self._show(Phase.DRAINING)
        return child_process.EXIT_DRAINED

    def _work(self) -> None:
        connection = self.link.connection()
        has_promoted = False
        if self.promoting.due_at() <= self.clock():
            has_promoted = not self.promoting.step(connection, rested=self._rested)
        self._rested = False
        # Let the rounds take a step after each promotion, so that an endless series of due tasks cannot hold them up.
        if has_promoted or not self._is_due_soon():
            next_due = self.rounds.step(connection)
            if next_due is not None:
                self.promoting.next_due = next_due
        if not self._ready:
            self._ready = True
            self._show(Phase.IDLE)
            log.logger().info(log_events.POLLER_STARTED, rank=self.rank)

    def _is_due_soon(self) -> bool:
        """Whether a promotion is due so soon that a call of a round would delay it."""
        return self.promoting.due_at() - self.clock() < CALL_SECONDS

    def _seconds_to_rest(self) -> float:
        """Return how many seconds to rest before the next call or heartbeat. If a call is overdue, the result is
        negative."""
        due_at = self.promoting.due_at()
        seconds = (due_at if self._is_due_soon() else min(due_at, self.rounds.next_at)) - self.clock()
        return min(seconds, HEARTBEAT_SECONDS)

    def _rest(self) -> None:
        seconds = self._seconds_to_rest()
        if self.bell.rest(max(0.0, seconds)):
            self.promoting.bell_rang()
        else:
            self._rested = seconds > 0

    def _show(self, phase: Phase) -> None:
        self.process.slot.phase = phase
        self.process.ring_master()
