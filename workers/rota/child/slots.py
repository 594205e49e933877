"""Slots: the shared memory through which children tell the master and the exporter what they do.

One sealed memfd, made by the master before its first child; one region a slot. Only aligned 8-byte words
are written through `memoryview.cast("q")`, so that a reader never sees half a number (struct.pack_into
writes zeros first). Bytes are written beside the words and published by a word written last. Nothing is
ever zeroed: a slot is reused only after its predecessor was retired, and its counters go on.

A region: header words | two copies of the current task | finished outcomes | metrics (see `recorder`).
"""

import fcntl
import mmap
import os
import time
from dataclasses import dataclass
from enum import IntEnum

WORD = 8
REGION_BYTES = 1 << 20
HEADER_WORDS = 16
TASK_WORDS = 64
OUTCOMES_AT = (HEADER_WORDS + 2 * TASK_WORDS) * WORD
METRICS_AT = 1 << 16
OUTCOMES_BYTES = METRICS_AT - OUTCOMES_AT
NAME_BYTES = 128

# The header's words.
_NONCE, _PID, _PHASE, _BEAT, _RENEWED, _TASK_NUMBER, _OUTCOMES_COUNT, _OUTCOMES_LENGTH = range(8)
# A current task's words; each name is its length and then NAME_BYTES bytes.
_STARTED, _DEADLINE, _ID_AT, _NAME_AT, _QUEUE_AT = 0, 1, 2, 19, 36

MASTER_SLOT = 0


class Phase(IntEnum):
    """What the process in a slot says of itself."""

    EMPTY = 0
    BOOTING = 1
    IDLE = 2
    BUSY = 3
    DRAINING = 4
    QUIET = 5


def boottime_ns() -> int:
    """Nanoseconds of CLOCK_BOOTTIME: shared by all processes of a machine, and going on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class CurrentTask:
    """The task a worker runs: `started_ns` and `deadline_ns` in CLOCK_BOOTTIME, deadline 0 for none."""

    id: str
    name: str
    queue: str
    started_ns: int
    deadline_ns: int


class Slot:
    """One region. The process that lives in the slot writes, except `renewed_ns`, which the master writes."""

    def __init__(self, region: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")

    # Life

    def begin(self, nonce: int) -> None:
        """Give the slot to a new life: master's side, before it asks for the process."""
        words = self._words
        words[_PID] = 0
        words[_PHASE] = Phase.EMPTY
        words[_OUTCOMES_COUNT] = 0
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

    def beat(self) -> None:
        """Say that the main thread is alive, now."""
        self._words[_BEAT] = boottime_ns()

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
        """Publish the task about to run; or, while one is published, what is known of it by now."""
        number = (self._words[_TASK_NUMBER] + 1) | 1
        base = self._task_base(number)
        self._words[base + _STARTED] = task.started_ns
        self._words[base + _DEADLINE] = task.deadline_ns
        self._put_name(base + _ID_AT, task.id)
        self._put_name(base + _NAME_AT, task.name)
        self._put_name(base + _QUEUE_AT, task.queue)
        self._words[_TASK_NUMBER] = number

    def end_task(self) -> None:
        """Publish that nothing runs."""
        self._words[_TASK_NUMBER] += 1

    def extend_task(self, deadline_ns: int) -> None:
        """Move the deadline of the current task."""
        self._words[self._task_base(self._words[_TASK_NUMBER]) + _DEADLINE] = deadline_ns

    def current_task(self) -> CurrentTask | None:
        """The task that runs, or that ran when the process died; None when there is none."""
        while True:
            number = self._words[_TASK_NUMBER]
            if number % 2 == 0:
                return None
            base = self._task_base(number)
            task = CurrentTask(
                self._get_name(base + _ID_AT),
                self._get_name(base + _NAME_AT),
                self._get_name(base + _QUEUE_AT),
                self._words[base + _STARTED],
                self._words[base + _DEADLINE],
            )
            if self._words[_TASK_NUMBER] == number:
                return task

    @staticmethod
    def _task_base(number: int) -> int:
        return HEADER_WORDS + ((number >> 1) & 1) * TASK_WORDS

    def _put_name(self, word: int, name: str) -> None:
        raw = name.encode()[:NAME_BYTES]
        at = (word + 1) * WORD
        self._bytes[at : at + len(raw)] = raw
        self._words[word] = len(raw)

    def _get_name(self, word: int) -> str:
        at = (word + 1) * WORD
        length = min(self._words[word], NAME_BYTES)
        return bytes(self._bytes[at : at + length]).decode(errors="replace")

    # Outcomes finished and not yet known to be settled

    def put_outcomes(self, count: int, data: bytes) -> None:
        """Leave packed settlements for the master, or none when they do not fit into OUTCOMES_BYTES.

        What is not left here is known to the process alone: killed before its turn is answered, its tasks run again.
        """
        self._words[_OUTCOMES_COUNT] = 0
        if len(data) > OUTCOMES_BYTES:
            return
        self._bytes[OUTCOMES_AT : OUTCOMES_AT + len(data)] = data
        self._words[_OUTCOMES_LENGTH] = len(data)
        self._words[_OUTCOMES_COUNT] = count

    def outcomes(self) -> tuple[int, bytes]:
        """How many arguments were left, and their wire form. Read only after the process is gone."""
        count = self._words[_OUTCOMES_COUNT]
        if not count:
            return 0, b""
        return count, bytes(self._bytes[OUTCOMES_AT : OUTCOMES_AT + self._words[_OUTCOMES_LENGTH]])

    @property
    def metrics(self) -> memoryview:
        """The part of the region where `recorder` keeps its records."""
        return self._bytes[METRICS_AT:]


class SlotMemory:
    """All slots. The master creates it; children attach to the descriptor they inherit."""

    def __init__(self, fd: int, count: int) -> None:
        self.fd = fd
        self.count = count
        self._map = mmap.mmap(fd, count * REGION_BYTES)
        self._view = memoryview(self._map)

    @classmethod
    def create(cls, count: int) -> "SlotMemory":
        """Make a memfd of `count` regions, sealed against shrinking. Sparse: untouched pages cost nothing."""
        fd = os.memfd_create("rota-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, count * REGION_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(fd, count)

    @classmethod
    def attach(cls, fd: int) -> "SlotMemory":
        """Map the memory behind an inherited descriptor."""
        return cls(fd, os.fstat(fd).st_size // REGION_BYTES)

    def slot(self, number: int) -> Slot:
        """The slot of that number, from 0. Raises IndexError outside the memory."""
        if not 0 <= number < self.count:
            raise IndexError(f"slot {number} of {self.count}")
        return Slot(self._view[number * REGION_BYTES : (number + 1) * REGION_BYTES])
