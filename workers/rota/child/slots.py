"""Slots: the shared memory through which children tell the master and the exporter what they do.

One sealed memfd, made by the master before its first child: the roster (see `slot_told`), and one region a slot, which
its process maps and no other child. Only aligned 8-byte words are written through `memoryview.cast("q")`, so that a
reader never sees half a number (struct.pack_into writes zeros first). Bytes are written beside the words and published
by a word written last. Counters are never zeroed: a slot is reused only after its predecessor was retired, and they go
on.

Whatever runs in a worker can write over its region. So a reader takes nothing from there that could harm anybody else:
texts and lengths are bounded, looks end, and nothing is believed of a region without its seal.

A region: header words | two copies of the current task | finished outcomes | metrics (see `recorder`).
"""

import time
from enum import IntEnum

from rota.child.slot_outcomes import HEADER_WORDS, METRICS_AT, OUTCOMES_WORD, TASK_WORDS, OutcomesOfSlot
from rota.child.slot_task import UNKNOWN_TASK, HeldUp, TaskInSlot, TaskTimes
from rota.child.slot_told import WORD
from rota.protocol.names import is_name

ENTRY_BYTES = 55 * WORD  # the longest entry has 374: two names of 128, six numbers of at most 16 digits, and the rest
NAME_BYTES = 128

# The header's words; the first is that of the outcomes, the second the seal.
_PHASE, _BEAT, _TASK_NUMBER, _WATCH_ASKED, _WISH, _SHORTEST, _MET = range(2, 9)
# A current task's words; each text is its length and then its bytes.
_STARTED, _DEADLINE, _CLAIMED, _UNSTARTED, _ENTRY_AT, _NAME_AT, _SOFT_DEADLINE = 0, 1, 2, 3, 4, 60, 77

MASTER_SLOT = 0


class Phase(IntEnum):
    """What the process in a slot says of itself."""

    EMPTY = 0
    BOOTING = 1
    IDLE = 2
    BUSY = 3
    DRAINING = 4
    QUIET = 5


class RecycleWish(IntEnum):
    """Why a worker would have a fresh one in its place."""

    NONE = 0
    MAX_TASKS = 1
    MAX_RSS = 2


# A process may write anything into its slot before it dies of that: what is no such value reads as none.
_PHASES = {phase.value: phase for phase in Phase}
_WISHES = {wish.value: wish for wish in RecycleWish}
_LOOKS = 16  # at a task while others begin. A look takes 3 us, a task 50 and more: what always changes is none


def _base_of(number: int) -> int:  # where the copy of the current task stands that this number publishes
    return HEADER_WORDS + ((number >> 1) & 1) * TASK_WORDS


def boottime_ns() -> int:
    """Nanoseconds of CLOCK_BOOTTIME: shared by all processes of a machine, and going on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _name_in(raw: bytes) -> str:
    """The name of a task; it becomes the label of a series, so it must be one that a task can have."""
    name = raw.decode(errors="replace")
    return name if is_name(name) else UNKNOWN_TASK


class Slot(OutcomesOfSlot):
    """One region, where the process writes that lives in the slot, and its part of the roster."""

    def __init__(self, region: memoryview, told: memoryview) -> None:
        super().__init__(region, told)
        self._base = HEADER_WORDS

    # Life

    def begin(self, nonce: int) -> None:
        """Give the slot to a new life: master's side, before it asks for the process."""
        words = self._words
        words[_PHASE] = Phase.EMPTY
        self.clear_outcomes()
        words[_TASK_NUMBER] = 0
        words[_WISH] = RecycleWish.NONE
        words[_SHORTEST] = 0
        words[_BEAT] = boottime_ns()
        self._give_to(nonce)

    def enter(self, nonce: int, pid: int) -> bool:
        """Take the slot as its process; False when it has been given to another life meanwhile."""
        if self.nonce != nonce:
            return False
        self._set_pid(pid)
        self.phase = Phase.BOOTING
        self.beat()
        return True

    def vacate(self) -> None:
        """Take the process out: master's side, while the zombie still holds its number.

        What it was doing and what it had finished stay to be read.
        """
        self._set_pid(0)
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
    def recycle_wish(self) -> RecycleWish:
        """Why the worker would be replaced. It leaves only when it is told to."""
        return _WISHES.get(self._words[_WISH], RecycleWish.NONE)

    @recycle_wish.setter
    def recycle_wish(self, wish: RecycleWish) -> None:
        self._words[_WISH] = wish

    @property
    def shortest_soft_ns(self) -> int:
        """The shortest soft limit under a second that was met of late; 0 for none. The master looks as often."""
        return self._words[_SHORTEST]

    @property
    def shortest_soft_met_ns(self) -> int:
        """When it was last met (CLOCK_BOOTTIME)."""
        return self._words[_MET]

    def show_soft_limit(self, limit_ns: int, met_ns: int) -> None:
        """Say that the shortest soft limit was met."""
        self._words[_SHORTEST] = limit_ns
        self._words[_MET] = met_ns

    # The current task: two copies and a number flipped last. Even numbers mean that nothing runs.

    def start_task(self, task: TaskInSlot) -> None:
        """Publish the task about to run. A `name` of "" is told later, by `name_task`."""
        words = self._words
        entry, name, started_ns, deadline_ns, claimed_ns, unstarted, soft_deadline_ns = task
        number = (words[_TASK_NUMBER] + 1) | 1
        base = self._base = _base_of(number)
        words[base + _STARTED] = started_ns
        words[base + _DEADLINE] = deadline_ns
        words[base + _CLAIMED] = claimed_ns
        words[base + _UNSTARTED] = unstarted
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        self._put_text(base + _ENTRY_AT, entry[:ENTRY_BYTES])
        self._put_text(base + _NAME_AT, name.encode()[:NAME_BYTES])
        words[_TASK_NUMBER] = number

    def name_task(self, name: str) -> None:
        """Tell the name of the task that `start_task` published without one."""
        self._put_text(self._base + _NAME_AT, name.encode()[:NAME_BYTES])

    def end_task(self) -> None:
        """Publish that nothing runs."""
        self._words[_TASK_NUMBER] += 1

    @property
    def tasks_ended(self) -> int:
        """How many tasks have ended in this life."""
        return self._task_number // 2

    @property
    def _task_number(self) -> int:
        return self._words[_TASK_NUMBER] if self.is_intact else 0

    def extend_task(self, deadline_ns: int, soft_deadline_ns: int) -> None:
        """Move the deadlines of the current task; 0 for no soft one."""
        words, base = self._words, self._base
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        words[base + _DEADLINE] = deadline_ns

    def current_task(self) -> TaskInSlot | None:
        """The task that runs, or that ran when the process died; None when there is none."""
        words = self._words
        for _ in range(_LOOKS):
            number = self._task_number
            if number % 2 == 0:
                return None
            base = _base_of(number)
            task = TaskInSlot(
                self._get_text(base + _ENTRY_AT, ENTRY_BYTES),
                _name_in(self._get_text(base + _NAME_AT, NAME_BYTES)),
                words[base + _STARTED],
                words[base + _DEADLINE],
                words[base + _CLAIMED],
                words[base + _UNSTARTED],
                words[base + _SOFT_DEADLINE],
            )
            if self._task_number == number:
                return task
        return None

    def task_times(self) -> TaskTimes | None:
        """Of the task that runs, without its texts: the master looks at all slots many times a second."""
        words = self._words
        for _ in range(_LOOKS):
            number = self._task_number
            if number % 2 == 0:
                return None
            base = _base_of(number)
            times = TaskTimes(words[base + _STARTED], words[base + _DEADLINE], words[base + _SOFT_DEADLINE])
            if self._task_number == number:
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

    # Claims of several tasks: the master looks every few milliseconds whether they are held up, once it was asked to

    def ask_for_watch(self) -> bool:
        """Have the master watch this slot; False when it does already, else ring it."""
        if self.is_watched:
            return False
        self._words[_WATCH_ASKED] = boottime_ns()  # another number than ever before
        return True

    def grant_watch(self) -> bool:
        """Watch the slot from now on, if that was asked for anew: master's side."""
        return self._grant(self._words[_WATCH_ASKED])

    @property
    def held_up_by(self) -> int:
        """The number of the task that runs while others of its claim wait, to be started after it or to be settled;
        0 when none does. Cheap, and right a moment later at the latest."""
        words, number = self._words, self._task_number
        waits = number % 2 == 1 and (words[_base_of(number) + _UNSTARTED] > 0 or words[OUTCOMES_WORD] > 0)
        return number if waits else 0

    def held_up(self) -> HeldUp | None:
        """The task that runs, and what waits to be settled before it; None when another began while this was read."""
        number = self._task_number
        task, outcomes = self.current_task(), self.outcomes()
        if task is None or self._task_number != number:
            return None
        return HeldUp(number, task, outcomes)

    @property
    def metrics(self) -> memoryview:
        """The part of the region where `recorder` keeps its records."""
        return self._bytes[METRICS_AT:]
