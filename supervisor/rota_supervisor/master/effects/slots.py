"""The slots of shared memory: what those of the children show, for the core, where it is something else than before,
and for people; and what the master shows in its own."""

import math
import os
import time
from collections.abc import Iterable

from rota.child.life import NANOSECONDS
from rota.child.slot_memory import SlotMemory
from rota.child.slot_texts import Board
from rota.child.slots import MASTER_SLOT, Phase, boottime_ns
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.fleet_members import Member, member_in
from rota_supervisor.fleet_snapshot import Moment
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import UNSEEN, Child, ChildState
from rota_supervisor.master.core.fleet_status import notice_of
from rota_supervisor.master.core.master_events import Look
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.process import started_at


def now_seconds() -> float:
    """The master's clock: CLOCK_BOOTTIME, as the slots have it."""
    return boottime_ns() / NANOSECONDS


def moment() -> Moment:
    """Return the time by the master's clock and by the wall clock."""
    return Moment(now_seconds(), time.time())


def members(state: MasterState, memory: SlotMemory) -> list[Member]:
    """Read from the slots what the master's processes show, itself among them."""
    own = Member(MASTER_SLOT, Role.MASTER, state.surroundings.pid, state.phase, 0.0)
    now_ns = boottime_ns()
    living = (child for child in state.children if child.pid and child.state is not ChildState.EXITED)
    return [own, *(_member(child, memory, now_ns) for child in living)]


def _member(child: Child, memory: SlotMemory, now_ns: int) -> Member:
    seen = member_in(child.slot, memory.slot(child.slot), now_ns)
    is_there = seen.pid == child.pid  # else the process has yet to enter its slot
    return seen if is_there else Member(child.slot, child.role, child.pid, Phase.BOOTING, 0.0)


class SlotReader:
    """Looks at slots, and remembers by slot what they showed, and in which state the child was then."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._seen: dict[int, tuple[ChildState, Look]] = {}

    def look(self, children: Iterable[Child]) -> tuple[Look, ...]:
        """Of these children those that show something new."""
        return tuple(look for child in children if (look := self._look_at(child)) is not None)

    def _look_at(self, child: Child) -> Look | None:
        number, state = child.slot, child.state
        slot = self._memory.slot(number)
        if state in UNSEEN or slot.nonce != child.nonce or not slot.is_intact:
            return None
        look = Look(
            number,
            child.nonce,
            slot.phase,
            slot.running_times(),
            slot.beat_ns,
            slot.recycle_reason,
            slot.shortest_soft_ns,
            slot.shortest_soft_met_ns,
            slot.has_worked,
            slot.has_outcomes,
            slot.stepping,
        )
        # A child in another state is to be judged by the same look anew.
        if self._seen.get(number) == (state, look):
            return None
        self._seen[number] = state, look
        return look


class Display:
    """The numbers whose definitions are marked MASTER, and the notice."""

    def __init__(self, state: MasterState, memory: SlotMemory) -> None:
        own = memory.slot(MASTER_SLOT)
        self._recorder = Recorder(own.metrics, label_of_queue=state.label_of_queue)
        self._state = state
        self._board = Board(own.far_spare)

    def begin(self) -> None:
        """Have every gauge there from the start."""
        for gauge, value in (
            (m.CONFIG_LAST_RELOAD_SUCCESSFUL, 1),
            (m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, time.time()),
            (m.START_TIME, started_at(os.getpid())),
            (m.REDIS_UP, 0),
            (m.REDIS_ROUND_TRIP, math.nan),
            (m.REDIS_EVICTS_KEYS, 0),
        ):
            self._recorder.gauge(gauge).set(value)

    def add(self, effect: do.AddToCounter) -> None:
        """Add to a counter. The exporter shows it at 0 before (`exporter.series.zeroes`)."""
        self._recorder.counter(effect.counter, *effect.labels).add(effect.amount)

    def set(self, effect: do.SetGauge) -> None:
        """Set a gauge; None shows that its value is not known."""
        value = math.nan if effect.value is None else effect.value
        self._recorder.gauge(effect.gauge, *effect.labels).set(value)

    def set_to_now(self, effect: do.SetGaugeToNow) -> None:
        """Set a gauge to the wall clock's time."""
        self._recorder.gauge(effect.gauge).set(time.time())

    def put_up(self, _effect: do.PutUpNotice) -> None:
        """Leave a notice for the exporter."""
        self._board.put_up(notice_of(self._state).to_json(self._board.room))
