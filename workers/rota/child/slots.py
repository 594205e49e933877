"""Slots: the shared memory through which children tell the master and the exporter what they do.

Only aligned 8-byte words are written through `memoryview.cast("q")`, so that a reader never sees half a number
(struct.pack_into writes zeros first). Bytes are written beside the words and published by a word written last. Counters
are never zeroed: a slot is reused only after its predecessor was retired, and they go on.

Whatever runs in a worker can write over its region. So a reader takes nothing from there that could harm anybody else:
texts and lengths are bounded, looks end, and nothing is believed of a region without its seal.

The words that the process of a slot cannot write are on the roster, which children map for reading. Only the master
writes there, and a process its own pid as it enters the slot, before any code of the application runs. So nothing that
a task does to its slot has the master, the zygote or the exporter take another process for it, or lifts its fence.
"""

import time
from enum import IntEnum
from typing import Any, Final

from rota.child.slot_layout import (
    HEADER,
    HELD_LINES_AT,
    LOG_BYTES,
    MARK,
    MARK_WORDS,
    METRICS_AT,
    METRICS_END,
    OUTCOMES_AT,
    REGION,
    ROSTER,
    ROSTER_WORDS,
    mark_at,
)
from rota.child.slot_record import HeldUp, TaskInSlot, TaskRecord, TaskTimes

MASTER_SLOT: Final = 0
# The word of the outcomes: how many arguments, where they begin, how many bytes.
_COUNT_SHIFT: Final = 40
_BEGIN_SHIFT: Final = 20
_OUTCOMES_MASK: Final = (1 << _BEGIN_SHIFT) - 1
_OUTCOMES_BYTES: Final = METRICS_AT - OUTCOMES_AT
# By global names, as a worker looks most of these up in each task.
_PHASE, _BEAT, _OUTCOMES = HEADER.phase, HEADER.beat_ns, HEADER.outcomes
_SEAL, _NONCE, _QUIET, _RECALLED = HEADER.seal, ROSTER.nonce, ROSTER.quiet, ROSTER.recalled
_PLACES: Final = ROSTER.places
_NUMBER: Final = mark_at(0) + MARK.number
_FURTHER_NUMBERS: Final = REGION.further_marks + MARK.number


def pids_on(roster: memoryview) -> list[int]:
    """The processes in all slots, by slot; 0 where there is none."""
    return roster.cast("q")[ROSTER.pid :: ROSTER_WORDS].tolist()


def _word(at: int) -> Any:
    """A word of the roster, as an attribute."""

    def read(self: "RosterPart") -> int:
        return self._roster[at]

    def write(self: "RosterPart", value: int) -> None:
        self._roster[at] = value

    return property(read, write)


class RosterPart:
    """What the roster says of one slot, beside the region that is sealed with it."""

    nonce: int = _word(ROSTER.nonce)
    """The life that the slot was given to."""
    pid: int = _word(ROSTER.pid)
    """The process that took the slot; 0 before, and when it is reaped."""
    renewed_ns: int = _word(ROSTER.renewed_ns)
    """When the last successful renewal of this owner's lease was sent (CLOCK_BOOTTIME)."""
    recalled: int = _word(ROSTER.recalled)
    """The number of the task for whose sake the master last recalled; 0 before the first time. It is written before the
    call is sent, so whoever finds an outcome settled already finds this as well."""
    places: int = _word(ROSTER.places)
    """How many tasks its process runs at once, at most."""
    stacks_asked: int = _word(ROSTER.stacks_asked)
    """How often its process was asked where its coroutines are. Written first; then comes WAKE_SIGNAL."""

    def __init__(self, region: memoryview, roster: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")
        self._roster = roster.cast("q")

    @property
    def is_intact(self) -> bool:
        """Whether nothing has written over the whole of the region. Of one that is not, nothing is believed."""
        return self._words[_SEAL] == self._roster[_NONCE]

    def is_undisturbed(self, recalled: int) -> bool:
        """Whether it is intact, and nothing was recalled since that was `recalled`; asked after each task."""
        roster = self._roster
        return self._words[_SEAL] == roster[_NONCE] and roster[_RECALLED] == recalled

    @property
    def quiet_asked(self) -> bool:
        """Whether the worker is to claim nothing, until this is taken back. Written first; then comes WAKE_SIGNAL."""
        return self._roster[_QUIET] != 0

    @quiet_asked.setter
    def quiet_asked(self, asked: bool) -> None:
        self._roster[_QUIET] = asked

    @property
    def is_watched(self) -> bool:
        """Whether the master looks every few milliseconds if what waits behind a task is held up."""
        return self._roster[ROSTER.watched] != 0

    def end_watch(self) -> None:
        """Watch the slot no more: master's side. Whoever claims next asks again."""
        self._roster[ROSTER.watched] = 0


class Phase(IntEnum):
    """What the process in a slot says of itself."""

    EMPTY = 0
    BOOTING = 1
    IDLE = 2
    BUSY = 3
    DRAINING = 4
    QUIET = 5


class RecycleReason(IntEnum):
    """Why a worker asks for a fresh one in its place."""

    NONE = 0
    MAX_TASKS = 1
    MAX_RSS = 2


# A process may write anything into its slot before it dies of that: what is no such value reads as none.
_PHASES = {phase.value: phase for phase in Phase}
_REASONS = {reason.value: reason for reason in RecycleReason}


def boottime_ns() -> int:
    """Nanoseconds of CLOCK_BOOTTIME: shared by all processes of a machine, and going on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class HeldLines:
    """Log lines of several short tasks, up to LOG_BYTES, which a worker writes at once.

    They are in its slot too, so that the master writes what a killed worker leaves behind. The worker never reads them
    from there, as a task may have written over them.
    """

    __slots__ = ("_bytes", "_lines", "_size", "_words")

    def __init__(self, region: memoryview, words: memoryview) -> None:
        self._bytes = region
        self._words = words
        self._lines: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        """How many lines are held."""
        return len(self._lines)

    def add(self, line: bytes) -> bool:
        """Hold a line; returns whether it fits."""
        begin = self._size
        end = begin + len(line)
        if end > LOG_BYTES:
            return False
        self._bytes[HELD_LINES_AT + begin : HELD_LINES_AT + end] = line
        self._lines.append(line)
        self._size = self._words[HEADER.held_lines] = end
        return True

    def text(self) -> bytes:
        """Return all of them."""
        return b"".join(self._lines)

    def clear(self) -> None:
        """They are written. Whoever is killed just before this has them written twice, and never not at all."""
        self._lines.clear()
        self._size = self._words[HEADER.held_lines] = 0

    def left_behind(self) -> bytes:
        """Return the lines that a process has left that is gone, whole ones only: master's side."""
        text = bytes(
            self._bytes[HELD_LINES_AT : HELD_LINES_AT + max(0, min(self._words[HEADER.held_lines], LOG_BYTES))]
        )
        return text[: text.rfind(b"\n") + 1]


class Slot(RosterPart):
    """One region, where the process writes that lives in the slot, and its part of the roster."""

    def __init__(self, region: memoryview, roster: memoryview) -> None:
        super().__init__(region, roster)
        self._first = TaskRecord(0, self._bytes, self._words, self._roster)
        self._records = {0: self._first}
        self.held_lines = HeldLines(self._bytes, self._words)
        self._left = 0  # the word of the outcomes as its process has it, whatever a task wrote over that
        self._left_to = OUTCOMES_AT  # where the next go

    # Life

    def begin(self, nonce: int, places: int = 1) -> None:
        """Give the slot to a new life, of a process that runs so many tasks at once: master's side, before it asks for
        the process."""
        words, roster = self._words, self._roster
        words[_PHASE] = Phase.EMPTY
        words[HEADER.recycle_reason] = words[HEADER.shortest_soft_ns] = words[HEADER.stepping] = 0
        words[HEADER.held_lines] = 0
        self._left, self._left_to, words[_OUTCOMES] = 0, OUTCOMES_AT, 0
        self._clear_marks(places)
        words[_BEAT] = boottime_ns()
        self.pid = self.recalled = roster[ROSTER.quiet] = roster[ROSTER.watched] = 0
        self.places = places
        words[HEADER.seal] = roster[ROSTER.nonce] = nonce

    def _clear_marks(self, places: int) -> None:
        end = _FURTHER_NUMBERS + (places - 1) * MARK_WORDS
        for word in (*range(_NUMBER, _NUMBER + MARK_WORDS), *range(_FURTHER_NUMBERS, end)):
            self._words[word] = 0

    def enter(self, nonce: int, pid: int) -> bool:
        """Take the slot as its process; False when it has been given to another life meanwhile."""
        if self.nonce != nonce:
            return False
        self.pid = pid
        self.phase = Phase.BOOTING
        self.beat()
        return True

    def vacate(self) -> None:
        """Take the process out: master's side, while the zombie holds its number. What it did stays to be read."""
        self.pid = 0
        self._words[_PHASE] = Phase.EMPTY

    @property
    def phase(self) -> Phase:
        return _PHASES.get(self._words[_PHASE], Phase.EMPTY)

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._words[_PHASE] = phase

    def beat(self, at_ns: int = 0) -> None:
        """Say that the main thread is alive: now, or at a time just read."""
        self._words[_BEAT] = at_ns or boottime_ns()

    @property
    def beat_ns(self) -> int:
        return self._words[_BEAT]

    @property
    def recycle_reason(self) -> RecycleReason:
        """Why the worker asks to be replaced. It leaves only when the master has it drained."""
        return _REASONS.get(self._words[HEADER.recycle_reason], RecycleReason.NONE)

    @recycle_reason.setter
    def recycle_reason(self, reason: RecycleReason) -> None:
        self._words[HEADER.recycle_reason] = reason

    @property
    def shortest_soft_ns(self) -> int:
        """The shortest soft limit under a second that was met of late; 0 for none. The master looks as often."""
        return self._words[HEADER.shortest_soft_ns]

    @property
    def shortest_soft_met_ns(self) -> int:
        """When it was last met (CLOCK_BOOTTIME)."""
        return self._words[HEADER.shortest_soft_met_ns]

    def show_soft_limit(self, limit_ns: int, met_ns: int) -> None:
        self._words[HEADER.shortest_soft_ns] = limit_ns
        self._words[HEADER.shortest_soft_met_ns] = met_ns

    # The tasks that run: one record a place

    def record(self, place: int) -> TaskRecord:
        """The record of that place, from 0; always the same one."""
        found = self._records.get(place)
        if found is None:
            found = self._records[place] = TaskRecord(place, self._bytes, self._words, self._roster)
        return found

    def numbers(self) -> list[int]:
        """By place the number of the task there, odd while it runs; nothing of a slot that was written over."""
        if not self.is_intact:
            return []
        words, places = self._words, self._roster[_PLACES]
        if places <= 1:
            return [words[_NUMBER]]
        further = words[_FURTHER_NUMBERS : _FURTHER_NUMBERS + (places - 1) * MARK_WORDS : MARK_WORDS]
        return [words[_NUMBER], *further.tolist()]

    def running(self) -> list[TaskInSlot]:
        """The tasks that run, or that ran when the process died, by place."""
        return [task for record in self.busy_records() if (task := record.current()) is not None]

    def running_times(self) -> tuple[TaskTimes, ...]:
        """Of the tasks that run, without their texts: the master looks at all slots many times a second."""
        if self._roster[_PLACES] <= 1:
            times = self._first.times()
            return () if times is None else (times,)
        return tuple(times for record in self.busy_records() if (times := record.times()) is not None)

    def busy_records(self) -> list[TaskRecord]:
        """The records in which a task runs."""
        return [self.record(place) for place, number in enumerate(self.numbers()) if number & 1]

    @property
    def has_worked(self) -> bool:
        """Whether a task has ended in this life."""
        if self._roster[_PLACES] <= 1:
            return self._first.number > 1
        return any(number > 1 for number in self.numbers())

    @property
    def stepping(self) -> int | None:
        """The place whose coroutine takes a step just now, where several run; None when none does."""
        places = self._roster[_PLACES]
        if places <= 1:
            return None
        place = self._words[HEADER.stepping] - 1
        return place if 0 <= place < places else None

    # Outcomes that no turn's answer has confirmed yet: settled from here when the process dies. They stand in a ring

    def add_outcomes(self, count: int, data: bytes) -> bool:
        """Leave packed settlements, `count` arguments, for the master, behind those left before; returns whether they
        fit. What does not is known to the process alone: killed before its turn is answered, those tasks run again."""
        left, at, size = self._left, self._left_to, len(data)
        end = at + size
        if (left & _OUTCOMES_MASK) + size > _OUTCOMES_BYTES:
            return False
        if end < METRICS_AT:
            self._bytes[at:end] = data
        else:
            room, end = METRICS_AT - at, end - _OUTCOMES_BYTES
            self._bytes[at:METRICS_AT] = data[:room]
            self._bytes[OUTCOMES_AT:end] = data[room:]
        self._left_to = end
        self._left = self._words[_OUTCOMES] = left + (count << _COUNT_SHIFT) + size
        return True

    @property
    def outcomes_left(self) -> tuple[int, int]:
        """How many arguments its process has left here, and how many bytes: what `drop_outcomes` takes."""
        return self._left >> _COUNT_SHIFT, self._left & _OUTCOMES_MASK

    def drop_outcomes(self, count: int, size: int) -> None:
        """Forget so many of the first arguments, of so many bytes: they are settled, those behind them are not."""
        begin = ((self._left >> _BEGIN_SHIFT & _OUTCOMES_MASK) + size) % _OUTCOMES_BYTES
        count, length = (self._left >> _COUNT_SHIFT) - count, (self._left & _OUTCOMES_MASK) - size
        self._left = self._words[_OUTCOMES] = count << _COUNT_SHIFT | begin << _BEGIN_SHIFT | length if count else 0
        if not count:
            self._left_to = OUTCOMES_AT

    @property
    def has_outcomes(self) -> bool:
        """Whether any are left here."""
        return self._words[_OUTCOMES] != 0

    def outcomes(self) -> tuple[int, bytes]:
        """How many arguments were left, and their wire form. Right when the process is gone, or runs one and the same
        task meanwhile: a worker of one task clears them between two tasks only."""
        left = self._words[_OUTCOMES]
        if not self.is_intact:
            return 0, b""
        begin = (left >> _BEGIN_SHIFT & _OUTCOMES_MASK) % _OUTCOMES_BYTES
        end = begin + min(left & _OUTCOMES_MASK, _OUTCOMES_BYTES)
        spare = self.spare
        return left >> _COUNT_SHIFT, bytes(spare[begin:end]) + bytes(spare[: max(0, end - _OUTCOMES_BYTES)])

    @property
    def spare(self) -> memoryview:
        """Where a worker leaves its outcomes. Other roles have none; the exporter has its node's pace there."""
        return self._bytes[OUTCOMES_AT:METRICS_AT]

    @property
    def far_spare(self) -> memoryview:
        """Where a worker of several tasks has its further places. Other roles have none; the master has its notice
        there."""
        return self._bytes[METRICS_END:]

    @property
    def metrics(self) -> memoryview:
        """The part of the region where `recorder` keeps its records."""
        return self._bytes[METRICS_AT:METRICS_END]

    # What waits behind a task: the master looks every few milliseconds whether it is held up, once it was asked to

    def ask_for_watch(self) -> bool:
        """Have the master watch this slot; False when it does already, else ring it."""
        if self.is_watched:
            return False
        self._words[HEADER.watch_asked] = boottime_ns()  # another number than ever before
        return True

    def grant_watch(self) -> bool:
        """Watch the slot from now on, if that was asked for anew: master's side."""
        asked, roster = self._words[HEADER.watch_asked], self._roster
        if asked == roster[ROSTER.watch_granted]:
            return False
        roster[ROSTER.watch_granted] = asked
        roster[ROSTER.watched] = 1
        return True

    @property
    def held_up_by(self) -> int:
        """The number of the task that runs while others wait, to be started after it or to be settled; 0 when none
        does, and where several run, as nothing waits there. Cheap, and right a moment later at the latest."""
        record = self.record(0)
        number = record.number
        waits = number % 2 == 1 and self.places <= 1 and (record.unstarted > 0 or self._words[_OUTCOMES] > 0)
        return number if waits else 0

    def held_up(self) -> HeldUp | None:
        """The task that runs, and what waits to be settled before it; None when another began while this was read."""
        record = self.record(0)
        task, outcomes = record.current(), self.outcomes()
        if task is None or record.number != task.number:
            return None
        return HeldUp(task, outcomes)
