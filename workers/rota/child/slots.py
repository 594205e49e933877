"""Slots: the shared memory through which children report to the master and the exporter.

Numbers are written only as aligned 8-byte words, through `memoryview.cast`, so a reader never sees a word that is
written only in part. (`struct.pack_into` is not used, because it writes zeros first.) Bytes are written first, and then
the word that makes them valid. Counters are never reset. A slot is reused only after its previous owner was reaped, and
the new process continues the counters.

Any code in a worker can overwrite the worker's region. So readers make sure that the content of a region cannot harm
other processes. They limit the lengths of texts, their loops are finite, and they ignore a region whose copy of the
nonce (the number of the slot's current process) is wrong.

The words that the process of a slot must not write are in the process table, which children map read-only. Only the
master writes there, except that a process writes its own pid when it enters the slot, before any code of the
application runs. So whatever a task writes into its slot, it cannot disable the worker's fence, and the master, the
zygote and the exporter never take another process for the worker.
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
    PROCESS_ROW,
    PROCESS_ROW_WORDS,
    REGION,
    mark_at,
)
from rota.child.slot_load import SlotLoad
from rota.child.slot_record import HeldUp, TaskInSlot, TaskRecord, TaskTimes

MASTER_SLOT: Final = 0
# One word describes the stored outcomes: the number of their arguments, their position, and their size in bytes.
_COUNT_SHIFT: Final = 40
_START_SHIFT: Final = 20
_OUTCOMES_MASK: Final = (1 << _START_SHIFT) - 1
_OUTCOMES_BYTES: Final = METRICS_AT - OUTCOMES_AT
# These are global names for speed, because a worker uses most of them in each task.
_PHASE: Final = HEADER.phase
_HEARTBEAT: Final = HEADER.heartbeat_ns
_OUTCOMES: Final = HEADER.outcomes
_NONCE_COPY: Final = HEADER.nonce_copy
_NONCE: Final = PROCESS_ROW.nonce
_QUIET: Final = PROCESS_ROW.quiet
_PREFETCH_RETURNED: Final = PROCESS_ROW.prefetch_returned
_CONCURRENCY: Final = PROCESS_ROW.concurrency
_NUMBER: Final = mark_at(0) + MARK.number
_FURTHER_NUMBERS: Final = REGION.further_marks + MARK.number


def pids_in(process_row: memoryview) -> list[int]:
    """Return a list of the pids in all slots, by slot number. The pid is 0 for a slot without a process."""
    return process_row.cast("q")[PROCESS_ROW.pid :: PROCESS_ROW_WORDS].tolist()


def _word(at: int) -> Any:
    """Return a property that reads and writes this word of a row of the process table."""

    def read(self: "ProcessRow") -> int:
        return self._process_row[at]

    def write(self: "ProcessRow", value: int) -> None:
        self._process_row[at] = value

    return property(read, write)


class ProcessRow:
    """The row of one slot in the process table. Some of its properties also read the region of the slot."""

    nonce: int = _word(PROCESS_ROW.nonce)
    """A number that identifies the current process of the slot among all processes that have used the slot."""
    pid: int = _word(PROCESS_ROW.pid)
    """The pid of the process that uses the slot. It is 0 until a process has entered the slot, and again after that
    process was reaped."""
    renewed_ns: int = _word(PROCESS_ROW.renewed_ns)
    """The time when the last successful renewal of this owner's lease was sent (CLOCK_BOOTTIME)."""
    prefetch_returned: int = _word(PROCESS_ROW.prefetch_returned)
    """The number of the task that was running when the master last returned the prefetched tasks behind it, or 0. The
    master writes the number before it sends the call that returns the tasks. A worker that finds an outcome already
    settled therefore also finds this number."""
    concurrency: int = _word(PROCESS_ROW.concurrency)
    """The maximum number of tasks that the process runs at once."""
    stacks_requested: int = _word(PROCESS_ROW.stacks_requested)
    """How often the process has been requested to log the stacks of its coroutines. The master writes the number before
    it sends WAKE_SIGNAL."""

    def __init__(self, region: memoryview, process_row: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")
        self._process_row = process_row.cast("q")

    @property
    def is_intact(self) -> bool:
        """Whether the region still has the right copy of the nonce. If not, a task has overwritten the region, and
        readers ignore it."""
        return self._words[_NONCE_COPY] == self._process_row[_NONCE]

    def is_undisturbed(self, prefetch_returned: int) -> bool:
        """Whether the region is intact and the master has returned no prefetched tasks since `prefetch_returned` was
        read.

        The worker checks this after each task.
        """
        process_row = self._process_row
        return self._words[_NONCE_COPY] == process_row[_NONCE] and process_row[_PREFETCH_RETURNED] == prefetch_returned

    @property
    def quiet_requested(self) -> bool:
        """Whether the master has asked the worker to be quiet, which means that the worker claims nothing. The master
        changes this value before it sends WAKE_SIGNAL."""
        return self._process_row[_QUIET] != 0

    @quiet_requested.setter
    def quiet_requested(self, is_requested: bool) -> None:
        self._process_row[_QUIET] = is_requested

    @property
    def is_watched(self) -> bool:
        """Whether the master watches this slot: every few milliseconds, it checks whether a running task delays
        prefetched ones."""
        return self._process_row[PROCESS_ROW.watched] != 0

    def end_watch(self) -> None:
        """End the watch of this slot. Only the master calls this. At its next claim, the worker may request another
        watch."""
        self._process_row[PROCESS_ROW.watched] = 0


class Phase(IntEnum):
    """The phase of a process, which the process reports in its slot."""

    EMPTY = 0
    BOOTING = 1
    IDLE = 2
    BUSY = 3
    DRAINING = 4
    QUIET = 5


class RecycleReason(IntEnum):
    """The reason why a worker requests its replacement."""

    NONE = 0
    MAX_TASKS = 1
    MAX_RSS = 2


# A task may have written anything into the slot. An invalid value is read as EMPTY or NONE.
_PHASES = {phase.value: phase for phase in Phase}
_REASONS = {reason.value: reason for reason in RecycleReason}


def boottime_ns() -> int:
    """Return CLOCK_BOOTTIME in nanoseconds. All processes on a machine share this clock, and it continues while the
    machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class HeldLines:
    """Log lines of several short tasks, up to LOG_BYTES, which a worker collects to write them at once.

    The lines are also stored in the slot, so that the master can write them if the worker is killed. The worker itself
    never reads the lines in the slot, because a task may have overwritten them.
    """

    __slots__ = ("_bytes", "_lines", "_size", "_words")

    def __init__(self, region: memoryview, words: memoryview) -> None:
        self._bytes = region
        self._words = words
        self._lines: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        """Return the number of lines that are not written yet."""
        return len(self._lines)

    def add(self, line: bytes) -> bool:
        """Add a line. Returns False if there is no room for it."""
        start = self._size
        end = start + len(line)
        if end > LOG_BYTES:
            return False
        self._bytes[HELD_LINES_AT + start : HELD_LINES_AT + end] = line
        self._lines.append(line)
        self._size = self._words[HEADER.held_lines] = end
        return True

    def text(self) -> bytes:
        """Return all lines that are not written yet, joined."""
        return b"".join(self._lines)

    def clear(self) -> None:
        """Remove all lines after they have been written. If the worker is killed just before this call, the lines are
        written twice, but no line is ever lost."""
        self._lines.clear()
        self._size = self._words[HEADER.held_lines] = 0

    def left_behind(self) -> bytes:
        """Return the complete lines that a process had not written when it died. The master calls this."""
        text = bytes(
            self._bytes[HELD_LINES_AT : HELD_LINES_AT + max(0, min(self._words[HEADER.held_lines], LOG_BYTES))]
        )
        return text[: text.rfind(b"\n") + 1]


class Slot(ProcessRow):
    """A slot: a region, which the process in the slot writes, and a row of the process table."""

    def __init__(self, region: memoryview, process_row: memoryview) -> None:
        super().__init__(region, process_row)
        self._first = TaskRecord(0, self._bytes, self._words, self._process_row)
        self._records = {0: self._first}
        self.held_lines = HeldLines(self._bytes, self._words)
        self.load = SlotLoad(self._bytes, self._words)
        self._left = 0  # the process's own copy of the outcomes word; a task cannot overwrite this copy
        self._left_to = OUTCOMES_AT  # where the next outcomes are written

    # Assignment of the slot to a process

    def assign(self, nonce: int, concurrency: int = 1) -> None:
        """Prepare the slot for a new process, which will run up to `concurrency` tasks at once.

        The master calls this before it starts the process, or has the zygote fork it.
        """
        words = self._words
        process_row = self._process_row
        words[_PHASE] = Phase.EMPTY
        words[HEADER.recycle_reason] = words[HEADER.shortest_soft_ns] = words[HEADER.stepping] = 0
        words[HEADER.held_lines] = 0
        self._left = 0
        self._left_to = OUTCOMES_AT
        words[_OUTCOMES] = 0
        self.load.clear()
        self._clear_marks(concurrency)
        words[_HEARTBEAT] = boottime_ns()
        self.pid = self.prefetch_returned = process_row[PROCESS_ROW.quiet] = process_row[PROCESS_ROW.watched] = 0
        self.concurrency = concurrency
        words[HEADER.nonce_copy] = process_row[PROCESS_ROW.nonce] = nonce

    def _clear_marks(self, concurrency: int) -> None:
        end = _FURTHER_NUMBERS + (concurrency - 1) * MARK_WORDS
        for word in (*range(_NUMBER, _NUMBER + MARK_WORDS), *range(_FURTHER_NUMBERS, end)):
            self._words[word] = 0

    def enter(self, nonce: int, pid: int) -> bool:
        """Write the pid of the process that uses the slot from now on. Returns False if the master has assigned the
        slot to another process in the meantime."""
        if self.nonce != nonce:
            return False
        self.pid = pid
        self.phase = Phase.BOOTING
        self.heartbeat()
        return True

    def vacate(self) -> None:
        """Remove the process from the slot. The rest of the slot remains readable.

        The master calls this while the process is a zombie, so that its pid cannot have been reused yet.
        """
        self.pid = 0
        self._words[_PHASE] = Phase.EMPTY

    @property
    def phase(self) -> Phase:
        return _PHASES.get(self._words[_PHASE], Phase.EMPTY)

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._words[_PHASE] = phase

    def heartbeat(self, at_ns: int = 0) -> None:
        """Record a heartbeat of the main thread, now or at `at_ns`."""
        self._words[_HEARTBEAT] = at_ns or boottime_ns()

    @property
    def heartbeat_ns(self) -> int:
        return self._words[_HEARTBEAT]

    @property
    def recycle_reason(self) -> RecycleReason:
        """The reason why the worker requests its replacement. The worker keeps working until the master drains it."""
        return _REASONS.get(self._words[HEADER.recycle_reason], RecycleReason.NONE)

    @recycle_reason.setter
    def recycle_reason(self, reason: RecycleReason) -> None:
        self._words[HEADER.recycle_reason] = reason

    @property
    def shortest_soft_ns(self) -> int:
        """The shortest soft limit of the tasks of the last minute, in nanoseconds, or 0 if no soft limit was below a
        second.

        It determines how often the master checks the deadlines.
        """
        return self._words[HEADER.shortest_soft_ns]

    @property
    def shortest_soft_met_ns(self) -> int:
        """The time when a task with the soft limit `shortest_soft_ns` last ran, in nanoseconds (CLOCK_BOOTTIME)."""
        return self._words[HEADER.shortest_soft_met_ns]

    def show_soft_limit(self, limit_ns: int, met_ns: int) -> None:
        self._words[HEADER.shortest_soft_ns] = limit_ns
        self._words[HEADER.shortest_soft_met_ns] = met_ns

    # The running tasks, with one record per task index

    def record(self, task_index: int) -> TaskRecord:
        """Return the record of a task index, from 0. Each call for an index returns the same object."""
        found = self._records.get(task_index)
        if found is None:
            found = self._records[task_index] = TaskRecord(task_index, self._bytes, self._words, self._process_row)
        return found

    def numbers(self) -> list[int]:
        """Return the current task number of each record, in the order of their indexes. A task number grows when a task
        starts and when it ends, so it is odd while a task runs. Returns [] if a task has overwritten this slot."""
        if not self.is_intact:
            return []
        words = self._words
        concurrency = self._process_row[_CONCURRENCY]
        if concurrency <= 1:
            return [words[_NUMBER]]
        further = words[_FURTHER_NUMBERS : _FURTHER_NUMBERS + (concurrency - 1) * MARK_WORDS : MARK_WORDS]
        return [words[_NUMBER], *further.tolist()]

    def running(self) -> list[TaskInSlot]:
        """Return the tasks that are running, or were running when the process died, in the order of their indexes."""
        return [task for record in self.busy_records() if (task := record.current()) is not None]

    def running_times(self) -> tuple[TaskTimes, ...]:
        """Return the times of the running tasks. This does not read the texts, because the master reads the times in
        all slots many times a second."""
        if self._process_row[_CONCURRENCY] <= 1:
            times = self._first.times()
            return () if times is None else (times,)
        return tuple(times for record in self.busy_records() if (times := record.times()) is not None)

    def busy_records(self) -> list[TaskRecord]:
        """Return the records that currently have a running task."""
        return [self.record(task_index) for task_index, number in enumerate(self.numbers()) if number & 1]

    @property
    def has_worked(self) -> bool:
        """Whether this process has finished at least one task."""
        if self._process_row[_CONCURRENCY] <= 1:
            return self._first.number > 1
        return any(number > 1 for number in self.numbers())

    @property
    def stepping(self) -> int | None:
        """The index of the task whose coroutine runs now in a concurrent worker, or None if none runs."""
        concurrency = self._process_row[_CONCURRENCY]
        if concurrency <= 1:
            return None
        task_index = self._words[HEADER.stepping] - 1
        return task_index if 0 <= task_index < concurrency else None

    # Outcomes that no reply to a turn has confirmed yet, in a ring buffer. If the process dies, the master settles
    # them.

    def add_outcomes(self, count: int, data: bytes) -> bool:
        """Store settlements in the slot, so that the master can settle the tasks if this process dies. `data` contains
        the `count` arguments of the settlements in wire form. Returns False if there is no room.

        In that case only the process itself knows the outcomes. If the process is killed before its next turn has
        settled the tasks, they run again.
        """
        left = self._left
        at = self._left_to
        size = len(data)
        end = at + size
        if (left & _OUTCOMES_MASK) + size > _OUTCOMES_BYTES:
            return False
        if end < METRICS_AT:
            self._bytes[at:end] = data
        else:
            room = METRICS_AT - at
            end = end - _OUTCOMES_BYTES
            self._bytes[at:METRICS_AT] = data[:room]
            self._bytes[OUTCOMES_AT:end] = data[room:]
        self._left_to = end
        self._left = self._words[_OUTCOMES] = left + (count << _COUNT_SHIFT) + size
        return True

    @property
    def outcomes_left(self) -> tuple[int, int]:
        """The number of the arguments of all stored outcomes, and their size in bytes. After these outcomes are
        settled, both numbers are passed to `drop_outcomes`."""
        return self._left >> _COUNT_SHIFT, self._left & _OUTCOMES_MASK

    def drop_outcomes(self, count: int, size: int) -> None:
        """Remove the oldest stored outcomes, which have `count` arguments with `size` bytes, because they are settled.
        Later outcomes are kept."""
        start = ((self._left >> _START_SHIFT & _OUTCOMES_MASK) + size) % _OUTCOMES_BYTES
        count = (self._left >> _COUNT_SHIFT) - count
        length = (self._left & _OUTCOMES_MASK) - size
        self._left = self._words[_OUTCOMES] = count << _COUNT_SHIFT | start << _START_SHIFT | length if count else 0
        if not count:
            self._left_to = OUTCOMES_AT

    @property
    def has_outcomes(self) -> bool:
        """Whether the slot has outcomes that are not known to be settled."""
        return self._words[_OUTCOMES] != 0

    def outcomes(self) -> tuple[int, bytes]:
        """Return the stored outcomes: the number of their arguments, and these arguments in wire form.

        The result is reliable if the process is dead. It is also reliable if the worker runs one task at a time and the
        same task runs during the whole read, because such a worker removes outcomes only between two tasks.
        """
        left = self._words[_OUTCOMES]
        if not self.is_intact:
            return 0, b""
        start = (left >> _START_SHIFT & _OUTCOMES_MASK) % _OUTCOMES_BYTES
        end = start + min(left & _OUTCOMES_MASK, _OUTCOMES_BYTES)
        spare = self.spare
        return left >> _COUNT_SHIFT, bytes(spare[start:end]) + bytes(spare[: max(0, end - _OUTCOMES_BYTES)])

    @property
    def spare(self) -> memoryview:
        """The area in which workers store outcomes. Other processes have no outcomes. The exporter stores the
        throughput of its node there, and pollers store the keys that look like lanes but are not."""
        return self._bytes[OUTCOMES_AT:METRICS_AT]

    @property
    def far_spare(self) -> memoryview:
        """The area in which concurrent workers store the records of their tasks, except for the task with index 0. The
        master has no tasks, so it stores its snapshot there."""
        return self._bytes[METRICS_END:]

    @property
    def metrics(self) -> memoryview:
        """The area in which `recorder` stores the metrics of the process."""
        return self._bytes[METRICS_AT:METRICS_END]

    # Watches: if a worker requests it, the master checks every few milliseconds whether a long task delays prefetched
    # tasks.

    def request_watch(self) -> bool:
        """Request that the master watch this slot, and return whether the caller has to wake the master.

        Returns False if the master already watches the slot.
        """
        if self.is_watched:
            return False
        # The time serves as a number that differs from those of all earlier requests.
        self._words[HEADER.watch_requested] = boottime_ns()
        return True

    def grant_watch(self) -> bool:
        """If the worker has requested a watch since the last one was granted, start a watch and return True. Only the
        master calls this."""
        requested = self._words[HEADER.watch_requested]
        process_row = self._process_row
        if requested == process_row[PROCESS_ROW.watch_granted]:
            return False
        process_row[PROCESS_ROW.watch_granted] = requested
        process_row[PROCESS_ROW.watched] = 1
        return True

    @property
    def held_up_by(self) -> int:
        """The number of the running task if that task delays others, or 0 if it does not.

        A task delays prefetched tasks, which start after it, and the settlement of earlier tasks. In a concurrent
        worker no task delays others, so this is always 0. This reads only a few words, but the value may be slightly
        outdated.
        """
        record = self.record(0)
        number = record.number
        waits = number % 2 == 1 and self.concurrency <= 1 and (record.unstarted > 0 or self._words[_OUTCOMES] > 0)
        return number if waits else 0

    def held_up(self) -> HeldUp | None:
        """Return the running task, and the outcomes that are not settled yet. Returns None if no task runs or if
        another task began during the read."""
        record = self.record(0)
        task = record.current()
        outcomes = self.outcomes()
        if task is None or record.number != task.number:
            return None
        return HeldUp(task, outcomes)
