"""Slots: the shared memory through which children tell the master and the exporter what they do.

Only aligned 8-byte words are written through `memoryview.cast("q")`, so that a reader never sees half a number
(struct.pack_into writes zeros first). Bytes are written beside the words and published by a word written last. Counters
are never zeroed: a slot is reused only after its predecessor was retired, and they go on.

Whatever runs in a worker can write over its region. So a reader takes nothing from there that could harm anybody else:
texts and lengths are bounded, looks end, and nothing is believed of a region without its seal.
"""

import time
from enum import IntEnum
from typing import Final

from rota.child.slot_layout import (
    ENTRY_BYTES,
    HEADER,
    METRICS_AT,
    NAME_BYTES,
    OUTCOMES_AT,
    REGION,
    ROSTER,
    TASK,
    WORD,
    task_at,
)
from rota.child.slot_progress import ProgressPart
from rota.child.slot_task import HeldUp, TaskInSlot, TaskTimes, name_in

MASTER_SLOT: Final = 0
_LOOKS: Final = 16  # tries to read a task that changes meanwhile; then it reads as none. A try takes 3 us, a task 50
_COUNT_SHIFT: Final = 32  # of the word of the outcomes
_LENGTH_MASK: Final = (1 << _COUNT_SHIFT) - 1
# By global names, as a worker looks most of these up in each task.
_PHASE, _BEAT, _NUMBER, _OUTCOMES = HEADER.phase, HEADER.beat_ns, HEADER.task_number, HEADER.outcomes
_STARTED, _DEADLINE, _SOFT_DEADLINE = TASK.started_ns, TASK.deadline_ns, TASK.soft_deadline_ns
_CLAIMED, _UNSTARTED, _VERDICT, _ENTRY, _NAME = TASK.claimed_ns, TASK.unstarted, TASK.verdict, TASK.entry, TASK.name
_NUMBERS: Final = (_STARTED, _DEADLINE, _CLAIMED, _UNSTARTED, _SOFT_DEADLINE, _VERDICT)  # as TaskInSlot has them


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


class Slot(ProgressPart):
    """One region, where the process writes that lives in the slot, and its part of the roster."""

    _base = REGION.tasks

    # Life

    def begin(self, nonce: int) -> None:
        """Give the slot to a new life: master's side, before it asks for the process."""
        words, roster = self._words, self._roster
        words[_PHASE] = Phase.EMPTY
        words[_OUTCOMES] = words[_NUMBER] = words[HEADER.recycle_reason] = words[HEADER.shortest_soft_ns] = 0
        self._forget_progress()
        words[_BEAT] = boottime_ns()
        self.pid = self.recalled = self.cancelled = roster[ROSTER.quiet] = roster[ROSTER.watched] = 0
        words[HEADER.seal] = roster[ROSTER.nonce] = nonce

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

    # The current task: two copies and a number flipped last. Even numbers mean that nothing runs.

    def start_task(  # noqa: PLR0917 - as TaskInSlot has them: each task passes here
        self,
        entry: bytes,
        name: str,
        started_ns: int,
        deadline_ns: int,
        claimed_ns: int = 0,
        unstarted: int = 0,
        soft_deadline_ns: int = 0,
        verdict: int = 0,
    ) -> int:
        """Publish the task about to run; returns its number. A `name` of "" and its verdict follow by `name_task`."""
        words = self._words
        number = (words[_NUMBER] + 1) | 1
        base = self._base = task_at(number)
        words[base + _STARTED] = started_ns
        words[base + _DEADLINE] = deadline_ns
        words[base + _CLAIMED] = claimed_ns
        words[base + _UNSTARTED] = unstarted
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        words[base + _VERDICT] = verdict
        self._put_text(base + _ENTRY, entry[:ENTRY_BYTES])
        words[base + _NAME] = 0
        if name:
            self._put_text(base + _NAME, name.encode()[:NAME_BYTES])
        words[_NUMBER] = number
        return number

    def name_task(self, name: str, verdict: int = 0) -> None:
        """Name the task that `start_task` published without a name."""
        self._words[self._base + _VERDICT] = verdict
        self._put_text(self._base + _NAME, name.encode()[:NAME_BYTES])

    def begin_task(self, entry: bytes, started_ns: int) -> None:
        """It starts only now, and its entry has another text."""
        self._words[self._base + _STARTED] = started_ns
        self._put_text(self._base + _ENTRY, entry[:ENTRY_BYTES])

    def extend_task(self, deadline_ns: int, soft_deadline_ns: int) -> None:
        """Move the deadlines of the current task; 0 for no soft one."""
        words, base = self._words, self._base
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        words[base + _DEADLINE] = deadline_ns

    def end_task(self) -> None:
        """Publish that nothing runs."""
        self._words[_NUMBER] += 1

    @property
    def tasks_ended(self) -> int:
        """How many tasks have ended in this life."""
        return self.task_number // 2

    @property
    def task_number(self) -> int:
        """The number of the task that runs among those of this life; even when nothing runs."""
        return self._words[_NUMBER] if self.is_intact else 0

    def current_task(self) -> TaskInSlot | None:
        """The task that runs, or that ran when the process died; None when there is none."""
        words = self._words
        for _ in range(_LOOKS):
            number = self.task_number
            if number % 2 == 0:
                return None
            base = task_at(number)
            texts = self._get_text(base + _ENTRY, ENTRY_BYTES), name_in(self._get_text(base + _NAME, NAME_BYTES))
            task = TaskInSlot(*texts, *(words[base + field] for field in _NUMBERS))
            if self.task_number == number:
                return task
        return None

    def task_times(self) -> TaskTimes | None:
        """Of the task that runs, without its texts: the master looks at all slots many times a second."""
        words = self._words
        for _ in range(_LOOKS):
            number = self.task_number
            if number % 2 == 0:
                return None
            base = task_at(number)
            times = TaskTimes(words[base + _STARTED], words[base + _DEADLINE], words[base + _SOFT_DEADLINE], number)
            if self.task_number == number:
                return times
        return None

    def _put_text(self, word: int, raw: bytes) -> None:
        # No length while the bytes change: whoever reads in between, or after a kill, finds no text, never half of one.
        at = (word + 1) * WORD
        self._words[word] = 0
        self._bytes[at : at + len(raw)] = raw
        self._words[word] = len(raw)

    def _get_text(self, word: int, most: int) -> bytes:
        at = (word + 1) * WORD
        return bytes(self._bytes[at : at + max(0, min(self._words[word], most))])

    # Outcomes that no turn's answer has confirmed yet: settled from here when the process dies

    def add_outcomes(self, count: int, data: bytes) -> None:
        """Leave packed settlements, `count` arguments, for the master, behind those left before. What does not fit is
        known to the process alone: killed before its turn is answered, those tasks run again."""
        left = self._words[_OUTCOMES]
        begin = OUTCOMES_AT + (left & _LENGTH_MASK)
        end = begin + len(data)
        if end <= METRICS_AT:
            self._bytes[begin:end] = data
            self._words[_OUTCOMES] = left + (count << _COUNT_SHIFT) + len(data)

    def clear_outcomes(self) -> None:
        """Forget what was left: it is settled."""
        self._words[_OUTCOMES] = 0

    @property
    def has_outcomes(self) -> bool:
        """Whether any are left here."""
        return self._words[_OUTCOMES] != 0

    def outcomes(self) -> tuple[int, bytes]:
        """How many arguments were left, and their wire form. Right when the process is gone, or runs one and the same
        task meanwhile: it clears them between two tasks only."""
        left = self._words[_OUTCOMES]
        if not self.is_intact:
            return 0, b""
        return left >> _COUNT_SHIFT, bytes(self.spare[: left & _LENGTH_MASK])

    @property
    def spare(self) -> memoryview:
        """Where a worker leaves its outcomes. Other roles have none; the master has its notice there."""
        return self._bytes[OUTCOMES_AT:METRICS_AT]

    @property
    def metrics(self) -> memoryview:
        """The part of the region where `recorder` keeps its records."""
        return self._bytes[METRICS_AT:]

    # Claims of several tasks: the master looks every few milliseconds whether they are held up, once it was asked to

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
        """The number of the task that runs while others of its claim wait, to be started after it or to be settled;
        0 when none does. Cheap, and right a moment later at the latest."""
        words, number = self._words, self.task_number
        waits = number % 2 == 1 and (words[task_at(number) + _UNSTARTED] > 0 or words[_OUTCOMES] > 0)
        return number if waits else 0

    def held_up(self) -> HeldUp | None:
        """The task that runs, and what waits to be settled before it; None when another began while this was read."""
        number = self.task_number
        task, outcomes = self.current_task(), self.outcomes()
        if task is None or self.task_number != number:
            return None
        return HeldUp(number, task, outcomes)
