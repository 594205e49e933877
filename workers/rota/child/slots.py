"""Slots: the shared memory through which children tell the master and the exporter what they do.

One sealed memfd, made by the master before its first child; one region a slot. Only aligned 8-byte words
are written through `memoryview.cast("q")`, so that a reader never sees half a number (struct.pack_into
writes zeros first). Bytes are written beside the words and published by a word written last. Counters are
never zeroed: a slot is reused only after its predecessor was retired, and they go on.

A region: header words | two copies of the current task | finished outcomes | metrics (see `recorder`).
"""

import time
from enum import IntEnum
from typing import NamedTuple

WORD = 8
REGION_BYTES = 1 << 20
HEADER_WORDS = 16
TASK_WORDS = 80
OUTCOMES_AT = (HEADER_WORDS + 2 * TASK_WORDS) * WORD
METRICS_AT = 1 << 16
OUTCOMES_BYTES = METRICS_AT - OUTCOMES_AT
ENTRY_BYTES = 55 * WORD  # the longest entry has 374: two names of 128, six numbers of at most 16 digits, and the rest
NAME_BYTES = 128

# The header's words. The last one says of the outcomes how many arguments they are and how many bytes, in one word, so
# that a process killed between two writes never leaves a count with the length of another.
_NONCE, _PID, _PHASE, _BEAT, _RENEWED, _TASK_NUMBER, _WATCH, _OUTCOMES, _RECALLED = range(9)
_COUNT_SHIFT = 32
_LENGTH_MASK = (1 << _COUNT_SHIFT) - 1
_WATCH_OFF, _WATCH_ASKED, _WATCH_ON = range(3)
# A current task's words; each text is its length and then its bytes.
_STARTED, _DEADLINE, _CLAIMED, _UNSTARTED, _ENTRY_AT, _NAME_AT = 0, 1, 2, 3, 4, 60

MASTER_SLOT = 0
UNKNOWN_TASK = "_unknown"  # the name, in metrics and logs, of a task that is not registered or not read yet


class Phase(IntEnum):
    """What the process in a slot says of itself."""

    EMPTY = 0
    BOOTING = 1
    IDLE = 2
    BUSY = 3
    DRAINING = 4
    QUIET = 5


def _base_of(number: int) -> int:  # where the copy of the current task stands that this number publishes
    return HEADER_WORDS + ((number >> 1) & 1) * TASK_WORDS


def boottime_ns() -> int:
    """Nanoseconds of CLOCK_BOOTTIME: shared by all processes of a machine, and going on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class CurrentTask(NamedTuple):
    """The task a worker runs: its entry's text, its `name` (UNKNOWN_TASK while its body is not read yet).

    `started_ns`, `deadline_ns` (0 for none) and `claimed_ns` in CLOCK_BOOTTIME; `unstarted`: how many entries of the
    same claim come after it.
    """

    entry: bytes
    name: str
    started_ns: int
    deadline_ns: int
    claimed_ns: int = 0
    unstarted: int = 0

    @property
    def id(self) -> str:
        return self._field(0)

    @property
    def queue(self) -> str:
        return self._field(1)

    def _field(self, number: int) -> str:
        fields = self.entry.split(b" ")
        return fields[number].decode(errors="replace") if number < len(fields) else ""


class HeldUp(NamedTuple):
    """A task, and the `outcomes` of those that ran before it and are not known to be settled: how many arguments, and
    their wire form. `number` is that of the task among those of this life."""

    number: int
    task: CurrentTask
    outcomes: tuple[int, bytes]


class Slot:
    """One region. The process that lives in the slot writes, except
    `renewed_ns`, `recalled` and the end of a watch, which the master writes."""

    def __init__(self, region: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")
        self._base = HEADER_WORDS

    # Life

    def begin(self, nonce: int) -> None:
        """Give the slot to a new life: master's side, before it asks for the process."""
        words = self._words
        words[_PID] = 0
        words[_PHASE] = Phase.EMPTY
        words[_OUTCOMES] = 0
        words[_WATCH] = _WATCH_OFF
        words[_RECALLED] = 0
        words[_TASK_NUMBER] = 0
        words[_BEAT] = boottime_ns()
        words[_NONCE] = nonce

    def enter(self, nonce: int, pid: int) -> bool:
        """Take the slot as its process; False when it has been given to another life meanwhile."""
        if self._words[_NONCE] != nonce:
            return False
        self._words[_PID] = pid
        self.phase = Phase.BOOTING
        self.beat()
        return True

    def vacate(self) -> None:
        """Take the process out: master's side, while the zombie still holds its number.

        What it was doing and what it had finished stay to be read.
        """
        self._words[_PID] = 0
        self._words[_PHASE] = Phase.EMPTY

    @property
    def nonce(self) -> int:
        return self._words[_NONCE]

    @property
    def pid(self) -> int:
        return self._words[_PID]

    @property
    def phase(self) -> Phase:
        return Phase(self._words[_PHASE])

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
    def renewed_ns(self) -> int:
        """When the last successful renewal of this owner's lease was sent (CLOCK_BOOTTIME)."""
        return self._words[_RENEWED]

    @renewed_ns.setter
    def renewed_ns(self, at_ns: int) -> None:
        self._words[_RENEWED] = at_ns

    # The current task: two copies and a number flipped last. Even numbers mean that nothing runs.

    def start_task(self, task: CurrentTask) -> None:
        """Publish the task about to run. A `name` of "" is told later, by `name_task`."""
        words = self._words
        entry, name, started_ns, deadline_ns, claimed_ns, unstarted = task
        number = (words[_TASK_NUMBER] + 1) | 1
        base = self._base = _base_of(number)
        words[base + _STARTED] = started_ns
        words[base + _DEADLINE] = deadline_ns
        words[base + _CLAIMED] = claimed_ns
        words[base + _UNSTARTED] = unstarted
        self._put_text(base + _ENTRY_AT, entry[:ENTRY_BYTES])
        self._put_text(base + _NAME_AT, name.encode()[:NAME_BYTES])
        words[_TASK_NUMBER] = number

    def name_task(self, name: str) -> None:
        """Tell the name of the task that `start_task` published without one."""
        self._put_text(self._base + _NAME_AT, name.encode()[:NAME_BYTES])

    def end_task(self) -> None:
        """Publish that nothing runs."""
        self._words[_TASK_NUMBER] += 1

    def extend_task(self, deadline_ns: int) -> None:
        """Move the deadline of the current task."""
        self._words[self._base + _DEADLINE] = deadline_ns

    def current_task(self) -> CurrentTask | None:
        """The task that runs, or that ran when the process died; None when there is none."""
        words = self._words
        while True:
            number = words[_TASK_NUMBER]
            if number % 2 == 0:
                return None
            base = _base_of(number)
            task = CurrentTask(
                self._get_text(base + _ENTRY_AT, ENTRY_BYTES),
                self._get_text(base + _NAME_AT, NAME_BYTES).decode(errors="replace") or UNKNOWN_TASK,
                words[base + _STARTED],
                words[base + _DEADLINE],
                words[base + _CLAIMED],
                words[base + _UNSTARTED],
            )
            if words[_TASK_NUMBER] == number:
                return task

    def _put_text(self, word: int, raw: bytes) -> None:
        # No length while the bytes change: whoever reads in between, or after a kill, finds no text, never half of one.
        at = (word + 1) * WORD
        self._words[word] = 0
        self._bytes[at : at + len(raw)] = raw
        self._words[word] = len(raw)

    def _get_text(self, word: int, most: int) -> bytes:
        at = (word + 1) * WORD
        return bytes(self._bytes[at : at + min(self._words[word], most)])

    # Claims of several tasks: the master looks every few milliseconds whether they are held up, once it was asked to

    def ask_for_watch(self) -> bool:
        """Have the master watch this slot; False when it does already, else ring it."""
        if self._words[_WATCH] == _WATCH_ON:
            return False
        self._words[_WATCH] = _WATCH_ASKED
        return True

    def grant_watch(self) -> bool:
        """Watch the slot from now on, if that was asked for: master's side."""
        if self._words[_WATCH] != _WATCH_ASKED:
            return False
        self._words[_WATCH] = _WATCH_ON
        return True

    def end_watch(self) -> None:
        """Watch the slot no more: master's side. Whoever claims next asks again."""
        self._words[_WATCH] = _WATCH_OFF

    @property
    def held_up_by(self) -> int:
        """The number of the task that runs while others of its claim wait, to be started after it or to be settled;
        0 when none does. Cheap, and right a moment later at the latest."""
        words, number = self._words, self._words[_TASK_NUMBER]
        waits = number % 2 == 1 and (words[_base_of(number) + _UNSTARTED] > 0 or words[_OUTCOMES] > 0)
        return number if waits else 0

    def held_up(self) -> HeldUp | None:
        """The task that runs, and what waits to be settled before it; None when another began while this was read."""
        number = self._words[_TASK_NUMBER]
        task, outcomes = self.current_task(), self.outcomes()
        if task is None or self._words[_TASK_NUMBER] != number:
            return None
        return HeldUp(number, task, outcomes)

    @property
    def recalled(self) -> int:
        """The number of the task for whose sake the master last recalled; 0 before the first time. It is written
        before the call is sent, so whoever finds an outcome settled already finds this as well."""
        return self._words[_RECALLED]

    @recalled.setter
    def recalled(self, number: int) -> None:
        self._words[_RECALLED] = number

    # Outcomes finished and not yet known to be settled

    def add_outcomes(self, count: int, data: bytes) -> None:
        """Leave packed settlements, `count` arguments, for the master, behind those left before.

        What does not fit into OUTCOMES_BYTES is known to the process alone: killed before its turn is answered, those
        tasks run again.
        """
        left = self._words[_OUTCOMES]
        length = left & _LENGTH_MASK
        end = length + len(data)
        if end <= OUTCOMES_BYTES:
            self._bytes[OUTCOMES_AT + length : OUTCOMES_AT + end] = data
            self._words[_OUTCOMES] = left + (count << _COUNT_SHIFT) + len(data)

    def clear_outcomes(self) -> None:
        """Forget what was left: it is settled."""
        self._words[_OUTCOMES] = 0

    def outcomes(self) -> tuple[int, bytes]:
        """How many arguments were left, and their wire form. Right when the process is gone, or runs one and the same
        task meanwhile: it clears them between two tasks only."""
        left = self._words[_OUTCOMES]
        return left >> _COUNT_SHIFT, bytes(self._bytes[OUTCOMES_AT : OUTCOMES_AT + (left & _LENGTH_MASK)])

    @property
    def metrics(self) -> memoryview:
        """The part of the region where `recorder` keeps its records."""
        return self._bytes[METRICS_AT:]
