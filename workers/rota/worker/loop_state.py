"""The state of the loop in both kinds of worker: what the worker may do, which step comes next, and when the worker
requests its replacement.

The next step is looked up in a table by what the worker may do (`Mode`) and its most urgent need (`Need`). The lookup
has no side effects.
"""

import math
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from rota.child.child_process import EXIT_DRAINED, EXIT_LOST, ChildProcess, Fence, StopSignals
from rota.child.slot_load import SlotLoad
from rota.child.slots import Phase, RecycleReason, Slot, boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.protocol.turns import Turn, TurnReply, TurnStatus
from rota.protocol.wire import Packed
from rota.telemetry import log, log_events
from rota.worker.attempt import Attempt
from rota.worker.doorbells import Bell
from rota.worker.redis_times import Anchor, RedisClock
from rota.worker.worker_report import Report

_MEBIBYTE: Final = 1 << 20
# Minimum time between two readings of the memory size. A reading takes 3 us, and a short task takes only 10 us.
_EVERY_NS: Final = 100_000_000
_LINE_BYTES: Final = 128


class Span(NamedTuple):
    """The number of attempts that a worker makes. After `request_at` attempts the worker requests its replacement, and
    keeps working until the master stops it. After `end_at` attempts it stops claiming."""

    request_at: int
    end_at: int


ENDLESS: Final = Span(sys.maxsize, sys.maxsize)


def span_of(max_tasks: int, jitter: float, random: float) -> Span:
    """Return the span of a worker that makes at most `max_tasks` attempts (0 for no limit).

    It requests its replacement after fewer attempts: `max_tasks` is reduced by up to the share `jitter`, and `random`,
    in [0, 1), decides by how much. Without this, workers that started together would all be replaced at the same time.
    """
    if max_tasks == 0:
        return ENDLESS
    return Span(max(1, math.ceil(max_tasks * (1 - jitter * random))), max_tasks)


class Growth:
    """The growth of this process's resident memory since this object was created. Pages that the process shares with
    the zygote are in both measurements, so they do not count as growth."""

    def __init__(self, max_mb: int) -> None:
        self._most_pages = max_mb * _MEBIBYTE // mmap.PAGESIZE
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._first_pages = self._resident_pages()
        self._checked_ns = 0

    def is_due(self, at_ns: int) -> bool:
        """Whether the last memory check was so long ago that another one is worth its cost."""
        return at_ns - self._checked_ns > _EVERY_NS

    def is_over(self, at_ns: int) -> bool:
        """Whether memory has grown by more than the limit. This reads the current size from /proc."""
        self._checked_ns = at_ns
        return self._resident_pages() - self._first_pages > self._most_pages

    def _resident_pages(self) -> int:
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1])


class RecycleRequest:
    """Reports to the master, through the slot, that this worker should be replaced, and why. `growth` is None if memory
    has no limit."""

    def __init__(self, process: ChildProcess, span: Span, growth: Growth | None) -> None:
        self._process = process
        self._span = span
        self._growth = growth

    def is_spent(self, attempts: int) -> bool:
        """Whether the worker has made all attempts of its span."""
        return attempts >= self._span.end_at

    def left(self, attempts: int) -> int:
        """Return how many more attempts the worker may make."""
        return max(0, self._span.end_at - attempts)

    def worked(self, attempts: int, at_ns: int) -> None:
        """Request a replacement if the worker has made enough attempts, or uses too much memory. `attempts` is the
        number of attempts so far.
        """
        if attempts >= self._span.request_at:
            self._request(RecycleReason.MAX_TASKS)
        if self._growth is not None and self._growth.is_due(at_ns):
            self.check_memory(at_ns)

    def check_memory(self, at_ns: int) -> None:
        """Request a replacement if the worker uses too much memory."""
        if self._growth is not None and self._growth.is_over(at_ns):
            self._request(RecycleReason.MAX_RSS)

    def _request(self, reason: RecycleReason) -> None:
        """Show the reason in the slot and wake the master, unless the slot already shows a reason."""
        if self._process.slot.recycle_reason is RecycleReason.NONE:
            self._process.slot.recycle_reason = reason
            self._process.ring_master()


class Step(Enum):
    """The next step of the loop."""

    RUN = "run"  # Run the claimed tasks.
    CLAIM = "claim"  # Make a turn that claims and settles.
    SETTLE = "settle"  # Make a turn that claims nothing.
    PARK = "park"  # Wait at the doorbells until there are new tasks.
    HOLD = "hold"  # Wait for a while, because nothing may be claimed.
    GIVE_BACK = "give back"  # Give back the claimed tasks that were not started.
    QUERY = "query"  # Query once which tasks were claimed by a turn that got no reply.
    LEAVE = "leave"  # Exit.


class _Key(Enum):
    """A key of the table `STEPS`. It uses the hash of `object`, because Enum's own hash is a Python function. That is
    slower, and would delay a worker that was just woken."""

    __hash__ = object.__hash__


class Mode(_Key):
    """The mode of a worker, which determines what the worker may do. If several modes apply, the first one in this list
    counts."""

    LOST = "lost"  # the worker's owner is no longer registered in Redis
    LEAVING = "leaving"  # the worker was asked to stop
    FENCED = "fenced"  # the worker's lease may have expired
    QUIET = "quiet"  # the master has requested that the worker claim nothing
    SPENT = "spent"  # the worker has made the maximum number of attempts (`Span`)
    WORKING = "working"  # none of the modes above


class Need(_Key):
    """The most urgent need of the loop, which together with the mode decides the next step."""

    OVERRUN = "overrun"  # tasks were claimed so long ago that they may have been given back
    CLAIMED = "claimed"  # claimed tasks are waiting to be started
    UNCONFIRMED = "unconfirmed"  # there are outcomes or tokens that no reply has confirmed yet
    UNKNOWN_CLAIM = "unknown claim"  # a claim was sent, but its reply has not arrived
    TURN = "turn"  # the last turn was so long ago that another one is needed
    SLEEP = "sleep"  # the last claim found nothing, and no doorbell has rung since
    WORK = "work"  # none of the needs above


def _row(*steps: Step) -> dict[Need, Step]:
    return dict(zip(Need, steps, strict=True))


# The steps of each row are in the order of Need: OVERRUN, CLAIMED, UNCONFIRMED, UNKNOWN_CLAIM, TURN, SLEEP, WORK. A
# worker that may not claim gives back the tasks that it has not started. Other workers can then start them, and if this
# worker loses its lease, no crash is counted against these tasks.
_RESTING = _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.SETTLE, Step.SETTLE, Step.HOLD, Step.HOLD)
STEPS: Final = {
    Mode.LOST: dict.fromkeys(Need, Step.LEAVE),
    Mode.LEAVING: _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.QUERY, Step.LEAVE, Step.LEAVE, Step.LEAVE),
    Mode.FENCED: _RESTING,
    Mode.QUIET: _RESTING,
    Mode.SPENT: _RESTING,
    Mode.WORKING: _row(Step.GIVE_BACK, Step.RUN, Step.CLAIM, Step.CLAIM, Step.CLAIM, Step.PARK, Step.CLAIM),
}


def mode_of(*, lost: bool, leaving: bool, fenced: bool, quiet: bool, spent: bool) -> Mode:
    """Return the first mode whose condition is true, or `WORKING`."""
    if lost:
        return Mode.LOST
    if leaving:
        return Mode.LEAVING
    if fenced:
        return Mode.FENCED
    if quiet:
        return Mode.QUIET
    return Mode.SPENT if spent else Mode.WORKING


def need_of(*, unconfirmed: bool, may_hold_more: bool, turn_due: bool, nothing_found: bool) -> Need:
    """Return the most urgent need of a worker that has started all the tasks that it claimed."""
    if unconfirmed:
        return Need.UNCONFIRMED
    if may_hold_more:
        return Need.UNKNOWN_CLAIM
    if turn_due:
        return Need.TURN
    return Need.SLEEP if nothing_found else Need.WORK


def is_passed_on(name: str, reply: TurnReply, served_as: Callable[[str], str]) -> bool:
    """Whether the turn has taken care of the doorbell token that woke this worker. If not, the worker has to pass the
    token on to another worker.

    `name` is the queue or pattern of the token, and `reply` is the reply to the turn that the worker made when it was
    woken. A turn that claims from a queue and leaves entries there rings the doorbell of that queue, and that of its
    pattern if any queue of the pattern has entries. A turn that finds nothing leaves no entries behind. In both cases
    the token is taken care of. It is not if all claims of the turn came from queues that are served under another name,
    because entries of `name` may then be left without a worker to start them. It is not either if the status of the
    reply is neither OK nor BACKLOGGED.
    """
    if reply.status is not TurnStatus.OK and reply.status is not TurnStatus.BACKLOGGED:
        return False
    return not reply.claims or name in [served_as(claim.entry.queue) for claim in reply.claims]


HOLD_SECONDS: Final = {Mode.FENCED: 0.2}
REST_SECONDS: Final = 5.0  # longest wait of a quiet worker that nothing wakes
LAST_QUERY_SECONDS: Final = 0.5  # how long a leaving worker waits for Redis to list the tasks that it still holds
# A worker that may not claim makes a turn at these intervals, to learn whether Redis still has its owner. A fenced
# worker makes turns more often, because its owner is more likely to be lost.
_TURN_PERIODS_NS: Final = {Mode.FENCED: NANOSECONDS, Mode.QUIET: 5 * NANOSECONDS, Mode.SPENT: 5 * NANOSECONDS}

# The master is not notified when the phase changes between IDLE and BUSY, because that happens many times per second.
_AT_WORK: Final = {Phase.IDLE, Phase.BUSY}


@dataclass(slots=True, kw_only=True)
class WorkerLoop:
    """The parts of a worker's loop that both kinds of worker share: its state, its mode, and its handling of
    replies."""

    process: ChildProcess
    store: Store
    tiers: Packed  # the worker's tiers, in wire form
    signals: StopSignals
    fence: Fence
    bell: Bell
    report: Report
    recycling: RecycleRequest  # requests that the master replace this worker, when that is due
    _slot: Slot = field(init=False)
    _load: SlotLoad = field(init=False)
    _clock: RedisClock = field(default_factory=RedisClock)  # computes readings of Redis time from replies
    _ready: bool = False  # whether a reply has arrived since the start of the process
    _lost: bool = False  # whether Redis has reported that the owner is not registered
    _fenced: bool = False  # whether the fence was up at the last check
    _shown: Phase = Phase.BOOTING  # the phase that the slot shows
    _idle: bool = False  # whether the last claim found nothing and no doorbell has rung since
    _wait_us: int = 0  # microseconds until a rate limit or a condition permits more tasks to start, 0 for none
    _attempts: int = 0  # number of attempts that this process has made
    _last_turn_ns: int = 0  # CLOCK_BOOTTIME of the last reply to a turn
    _listed_ns: int = 0  # CLOCK_BOOTTIME of the last reply to a turn that did not wait at the doorbells
    _round_trip_ns: int = 0  # duration of the last turn that did not wait at the doorbells, in nanoseconds
    _sent_before: bool = False  # whether the outcomes were already sent once by a turn that got no reply
    _sent_from_slot: tuple[int, int] = (0, 0)  # which outcomes in the slot the last turn has sent
    _prefetch_returned: int = 0  # the slot's `prefetch_returned` when the last turn was sent

    def __post_init__(self) -> None:
        self._slot = self.process.slot
        self._load = self._slot.load

    def _count_failure(self, attempt: Attempt) -> None:
        """Count the attempt in this worker's load if it was a task's first attempt and it failed. A retry that the task
        itself requested is not a failure."""
        entry = attempt.entry
        if not (entry.failures or entry.crashes) and attempt.failure() is not None:
            self._load.first_failures += 1

    def _call(self, turn: Turn) -> ScriptCall[TurnReply]:
        """Return the command for a turn that is about to be sent. Also store which outcomes in the slot the turn sends,
        and the current value of `prefetch_returned`."""
        self._sent_from_slot = self._slot.outcomes_left
        self._prefetch_returned = self._slot.prefetch_returned
        return self.store.turn(self.process.owner, self.tiers, turn)

    def _check_mode(self, now_ns: int, phase: Phase = Phase.IDLE) -> Mode:
        """Return the worker's mode, and show its phase in the slot: draining, quiet, or otherwise `phase`."""
        fenced = self.fence.is_up(now_ns)
        quiet = self._slot.quiet_requested
        leaving = self.signals.stop_requested
        if fenced is not self._fenced:
            self._log_fence(is_up=fenced)
        if leaving or quiet:
            phase = Phase.DRAINING if leaving else Phase.QUIET
        if phase is not self._shown and (self._ready or leaving):
            self._show(phase)
        spent = self.recycling.is_spent(self._attempts)
        return mode_of(lost=self._lost, leaving=leaving, fenced=fenced, quiet=quiet, spent=spent)

    def _is_turn_due(self, mode: Mode, now_ns: int) -> bool:
        period_ns = _TURN_PERIODS_NS.get(mode)
        return not self._clock.is_good(now_ns) if period_ns is None else now_ns - self._last_turn_ns >= period_ns

    def _log_fence(self, *, is_up: bool) -> None:
        self._fenced = is_up
        if is_up:
            log.logger().warning(log_events.WORKER_FENCED, owner=self.process.owner)

    def _show(self, phase: Phase) -> None:
        """Show the phase in the slot. Notify the master as well, unless the phase only changes between idle and
        busy."""
        before = self._shown
        self._shown = phase
        self._slot.phase = phase
        if not {before, phase} <= _AT_WORK:
            self.process.ring_master()

    def _report_ready(self) -> None:
        """Report that this worker is ready, because the first reply from Redis has arrived."""
        self._ready = True
        self._show(Phase.QUIET if self._slot.quiet_requested else Phase.IDLE)
        log.logger().info(log_events.WORKER_STARTED, owner=self.process.owner)

    def _note_immediate_reply(self, reply: TurnReply, sent_ns: int) -> Anchor:
        """Record when a turn that did not wait at the doorbells got its reply, and return the reading of Redis time in
        the reply."""
        if not self._ready:
            self._report_ready()
        received_ns = self._listed_ns = boottime_ns()
        self._round_trip_ns = received_ns - sent_ns
        self.report.turn_took(self._round_trip_ns / NANOSECONDS)
        return self._clock.from_immediate_reply(reply.now_us, sent_ns, received_ns)

    def _take_status(self, reply: TurnReply, anchor: Anchor, held: int) -> None:
        """Store what a reply says about this worker, and remove the outcomes that it confirms from the slot. `held` is
        the number of tasks that the worker held, for the log."""
        self._slot.drop_outcomes(*self._sent_from_slot)
        self._sent_before = False
        self._lost = reply.status is TurnStatus.LOST
        self._wait_us = reply.wait_us
        self._last_turn_ns = anchor.received_ns
        if self._lost:
            log.logger().error(log_events.WORKER_LOST, owner=self.process.owner, held=held)

    @property
    def _exit_code(self) -> int:
        return EXIT_LOST if self._lost else EXIT_DRAINED
