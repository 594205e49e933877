"""The record of one task in a slot: two copies of the task's data, and the task number. The number grows by one when a
task starts and when it ends, so it is odd while a task runs. It also selects the current copy, and it is written after
that copy.

A worker that runs one task at a time has one record, with index 0. A concurrent worker has one record for each task
that it can run at once. The master identifies a task by the index of its record and by the task number.

The record also holds the task's progress. Any thread of the task, and any process that the task forks, can write the
progress. The progress is stored with a checksum, a length, and the mark of the task (nonce and number). So it is never
mistaken for the progress of another task. Another process may read the text while its bytes are being copied. So a
reader repeats the read until the checksum matches. A lock would not work: if a process were forked while another thread
holds the lock, the lock would stay locked in the forked process.
"""

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from rota.child.slot_layout import (
    ENTRY_BYTES,
    HEADER,
    MARK,
    NAME_BYTES,
    PROCESS_ROW,
    PROGRESS_BYTES,
    RECORD,
    TASK,
    TASK_WORDS,
    WORD,
    mark_at,
    record_at,
)
from rota.protocol.keys import UNKNOWN_TASK, is_name
from rota.protocol.progress import LONGEST

_LENGTH_AT: Final = 4
_MARK_AT: Final = 8
_TEXT_AT: Final = 16
# How many times a read is attempted if the task changes during it. If every try fails, no task is returned. A read
# takes 3 us, while even a short task takes 50 us.
_READ_ATTEMPTS: Final = 16
_NONCE_SHIFT: Final = 40  # no process ever runs 2**40 tasks with one index
_WORD_MASK: Final = (1 << 64) - 1
# These are global names for speed, because a worker uses most of them in each task.
_STARTED: Final = TASK.started_ns
_DEADLINE: Final = TASK.deadline_ns
_SOFT_DEADLINE: Final = TASK.soft_deadline_ns
_CLAIMED: Final = TASK.claimed_ns
_UNSTARTED: Final = TASK.unstarted
_KILL_POLICY: Final = TASK.kill_policy
_ENTRY: Final = TASK.entry
_NAME: Final = TASK.name
# The numbers of a task, in the order of TaskInSlot.
_NUMBERS: Final = (_STARTED, _DEADLINE, _CLAIMED, _UNSTARTED, _SOFT_DEADLINE, _KILL_POLICY)
_COPY: Final = Struct(f"{_ENTRY + 1}q{ENTRY_BYTES}sq")  # the fields of a task, up to the length of its name
_NONCE_COPY: Final = HEADER.nonce_copy
_NONCE: Final = PROCESS_ROW.nonce
_HEARTBEAT: Final = HEADER.heartbeat_ns
_STEPPING: Final = HEADER.stepping


def name_in(raw: bytes) -> str:
    """Return the name of a task as text. The name becomes a metric label, so an invalid name is replaced by
    UNKNOWN_TASK."""
    name = raw.decode(errors="replace")
    return name if is_name(name) else UNKNOWN_TASK


_CRASH_LIMIT_BITS: Final = 10  # enough for MOST_CRASHES
_CRASH_LIMIT_MASK: Final = (1 << _CRASH_LIMIT_BITS) - 1
_LONGEST_DELAY_US: Final = 1 << 52  # over a hundred years
_DEAD: Final = 1
_RETRY: Final = 2


class KillPolicy(NamedTuple):
    """The outcome that the master gives a task if its worker is killed because the task exceeded its hard time limit.

    The worker writes the policy into one word of its slot when the task starts, because the master imports no user
    code.
    """

    # Whether an attempt that exceeds the hard time limit counts as a failure. Otherwise it counts as a crash.
    counts_as_failure: bool = False
    retry_us: int | None = None  # delay in microseconds before the retry after a hard time limit, None for no retry
    crash_limit: int = 0  # the `crash_limit` of the task, 0 to use the fleet's `crash_limit`

    def to_word(self) -> int:
        outcome = _DEAD if self.retry_us is None else _RETRY + min(self.retry_us, _LONGEST_DELAY_US)
        return (outcome if self.counts_as_failure else 0) << _CRASH_LIMIT_BITS | self.crash_limit

    @classmethod
    def from_word(cls, word: int) -> "KillPolicy":
        """Return the kill policy that is stored in a word. If no worker can have written the word, a task has
        overwritten the slot. In that case, return the default policy."""
        outcome = word >> _CRASH_LIMIT_BITS
        crash_limit = word & _CRASH_LIMIT_MASK
        if not 0 <= outcome <= _RETRY + _LONGEST_DELAY_US:
            return cls()
        return cls(outcome > 0, outcome - _RETRY if outcome >= _RETRY else None, crash_limit)


class TaskInSlot(NamedTuple):
    """A running task as it is recorded in the slot of its worker. Names that end in `_ns` are times of
    CLOCK_BOOTTIME."""

    entry: bytes  # text of the task's entry
    name: str  # UNKNOWN_TASK until the body is decoded
    started_ns: int
    deadline_ns: int  # hard time limit
    claimed_ns: int = 0  # when the worker received the reply to the claim
    unstarted: int = 0  # number of entries of the same claim that wait behind the task
    soft_deadline_ns: int = 0  # when the soft time limit ends the task, 0 for none
    kill_policy: int = 0  # see KillPolicy
    task_index: int = 0  # the index of the task's record in the slot
    number: int = 0  # distinguishes the task from others that this process has run with the same index

    @property
    def id(self) -> str:
        return self._field(0)

    @property
    def queue(self) -> str:
        return self._field(1)

    @property
    def due(self) -> str:
        """The due time, in microseconds of Redis time."""
        return self._field(3)

    @property
    def ready(self) -> str:
        """The time at which the task became ready, in microseconds of Redis time. It distinguishes tasks that have the
        same id."""
        return self._field(4)

    def _field(self, number: int) -> str:
        fields = self.entry.split(b" ")
        return fields[number].decode(errors="replace") if number < len(fields) else ""


class TaskTimes(NamedTuple):
    """The fields of `TaskInSlot` that are numbers: its start, its deadlines, its number and its index."""

    started_ns: int
    deadline_ns: int
    soft_deadline_ns: int
    number: int
    task_index: int = 0


class HeldUp(NamedTuple):
    """A running task, with the outcomes that it may hold up: those of earlier tasks that the worker has not settled
    yet."""

    task: TaskInSlot
    outcomes: tuple[int, bytes]  # the number of arguments, and their wire form


class TaskRecord:
    """The record of one task in a slot. The process in the slot writes the record, except for the word `cancelled`,
    which the master writes."""

    __slots__ = (
        "_base",
        "_bytes",
        "_cancelled_at",
        "_copies_at",
        "_number_at",
        "_process_row",
        "_progress_at",
        "_words",
        "task_index",
    )

    def __init__(self, task_index: int, region: memoryview, words: memoryview, process_row: memoryview) -> None:
        self.task_index = task_index
        self._bytes = region
        self._words = words
        self._process_row = process_row
        self._number_at = mark_at(task_index)
        self._copies_at = record_at(task_index) + RECORD.copies
        self._progress_at = record_at(task_index) + RECORD.progress
        self._cancelled_at = self._number_at + MARK.cancelled
        self._base = self._copies_at

    # Methods that the worker calls

    def start(  # noqa: PLR0917 - the arguments of TaskInSlot, in a call that each task makes
        self,
        entry: bytes,
        name: str,
        started_ns: int,
        deadline_ns: int,
        claimed_ns: int = 0,
        unstarted: int = 0,
        soft_deadline_ns: int = 0,
        kill_policy: int = 0,
    ) -> int:
        """Write a task that is about to run into the record, and return its task number. If `name` is empty, call the
        method `name()` later to set the name and the kill policy."""
        words = self._words
        number_at = self._number_at
        number = (words[number_at] + 1) | 1
        base = self._base = self._copies_at + ((number >> 1) & 1) * TASK_WORDS
        # `pack_into` does not write whole words at once. It is safe here, because readers use this copy only after the
        # number has selected it.
        _COPY.pack_into(
            self._bytes,
            base * WORD,
            started_ns,
            deadline_ns,
            claimed_ns,
            unstarted,
            soft_deadline_ns,
            kill_policy,
            len(entry),
            entry,
            0,
        )
        if name:
            self._put_text(base + _NAME, name.encode()[:NAME_BYTES])
        words[number_at] = number
        return number

    def name(self, name: str, kill_policy: int = 0) -> None:
        """Add the name and the kill policy of the current task, for which `start` was called without a name."""
        words = self._words
        at = self._base + _NAME
        raw = name.encode()[:NAME_BYTES]
        words[self._base + _KILL_POLICY] = kill_policy
        start = (at + 1) * WORD
        self._bytes[start : start + len(raw)] = raw
        words[at] = len(raw)  # the length was 0 until now, and is written last, as in `_put_text`

    def restart(self, entry: bytes, started_ns: int) -> None:
        """Publish the new entry and start time of a task that had to wait for permission to start."""
        self._words[self._base + _STARTED] = started_ns
        self._put_text(self._base + _ENTRY, entry[:ENTRY_BYTES])

    def extend(self, deadline_ns: int, soft_deadline_ns: int) -> None:
        """Set the deadlines of the current task, 0 for no soft deadline."""
        words = self._words
        base = self._base
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        words[base + _DEADLINE] = deadline_ns

    def heartbeat(self, at_ns: int) -> None:
        """Record a heartbeat that the task reports. It counts as a heartbeat of the process.

        In a concurrent worker, this call has no effect, because otherwise a thread of one task could hide that the loop
        is blocked.
        """
        if self._process_row[PROCESS_ROW.concurrency] <= 1:
            self._words[_HEARTBEAT] = at_ns

    def end(self) -> None:
        """Publish that the task has ended and nothing runs."""
        self._words[self._number_at] += 1

    def is_cancelled(self) -> bool:
        """Whether the running task was cancelled: whether `cancelled` is the number of this task. If both numbers are
        0, this is false, because a task has then overwritten the slot."""
        words = self._words
        return words[self._cancelled_at] == words[self._number_at] != 0

    def enter_step(self) -> None:
        """Record that a step of the task's coroutine begins. Until it ends, no other task can proceed."""
        self._words[_STEPPING] = self.task_index + 1

    def leave_step(self) -> None:
        """Record that the coroutine has yielded to the loop."""
        self._words[_STEPPING] = 0

    # Both sides

    @property
    def cancelled(self) -> int:
        """The number of the task that was cancelled last, or 0 if no task was cancelled. The master writes this number
        before it sends SOFT_LIMIT_SIGNAL."""
        return self._words[self._cancelled_at]

    @cancelled.setter
    def cancelled(self, number: int) -> None:
        self._words[self._cancelled_at] = number

    @property
    def number(self) -> int:
        """The task number. It grows by one when a task starts with this index and when it ends, so it is odd while a
        task runs. It is also 0 if a task has overwritten the slot."""
        return self._words[self._number_at] if self._words[_NONCE_COPY] == self._process_row[_NONCE] else 0

    def current(self) -> TaskInSlot | None:
        """Return the task that is running, or that was running when the process died. Returns None if there is none."""
        words = self._words
        for _ in range(_READ_ATTEMPTS):
            number = self.number
            if number % 2 == 0:
                return None
            base = self.copy_at(number)
            texts = self._get_text(base + _ENTRY, ENTRY_BYTES), name_in(self._get_text(base + _NAME, NAME_BYTES))
            numbers = [*(words[base + field] for field in _NUMBERS), self.task_index, number]
            task = TaskInSlot(*texts, *numbers)
            if self.number == number:
                return task
        return None

    def times(self) -> TaskTimes | None:
        """Return the times of the running task, or None if none runs. This does not read the texts, because the master
        reads the times in all slots many times a second."""
        words = self._words
        for _ in range(_READ_ATTEMPTS):
            number = self.number
            if number % 2 == 0:
                return None
            base = self.copy_at(number)
            deadlines = words[base + _DEADLINE], words[base + _SOFT_DEADLINE]
            times = TaskTimes(words[base + _STARTED], *deadlines, number, self.task_index)
            if self.number == number:
                return times
        return None

    @property
    def unstarted(self) -> int:
        """The number of entries that were claimed together with the running task and are still waiting."""
        return self._words[self.copy_at(self.number) + _UNSTARTED]

    def _put_text(self, word: int, raw: bytes) -> None:
        # The length is 0 while the bytes change. So a reader never gets half a text, even if the process is killed in
        # between.
        at = (word + 1) * WORD
        self._words[word] = 0
        self._bytes[at : at + len(raw)] = raw
        self._words[word] = len(raw)

    def _get_text(self, word: int, most: int) -> bytes:
        at = (word + 1) * WORD
        return bytes(self._bytes[at : at + max(0, min(self._words[word], most))])

    # The progress of the task. If tasks report no progress, these words are never written and take no memory.

    def report_progress(self, entry: bytes, text: bytes) -> None:
        """Publish the progress of the task with this entry, if it is the running task.

        Otherwise, ignore the report, because it comes from a thread or a process that an earlier task left behind.
        """
        mark = self._mark_of(entry)
        if mark and len(text) <= LONGEST:
            body = b"%b%b%b" % (_packed(len(text), 4), _packed(mark, 8), text)
            raw = _packed(crc32(body), 4) + body
            at = self._progress_at * WORD
            self._bytes[at : at + len(raw)] = raw

    def progress_of(self, entry: bytes) -> bytes:
        """Return the progress of the task with this entry, or b"" if there is none or the task does not run here."""
        if not self.has_progress:
            return b""
        mark = self._mark_of(entry)
        at = self._progress_at * WORD
        for _ in range(_READ_ATTEMPTS):
            raw = bytes(self._bytes[at : at + PROGRESS_BYTES])
            body = raw[_LENGTH_AT : _TEXT_AT + min(_unpacked(raw[_LENGTH_AT:_MARK_AT]), LONGEST)]
            if crc32(body) == _unpacked(raw[:_LENGTH_AT]):
                is_its_own = mark and _unpacked(raw[_MARK_AT:_TEXT_AT]) == mark
                return body[_TEXT_AT - _LENGTH_AT :] if is_its_own else b""
        return b""

    @property
    def has_progress(self) -> bool:
        """Whether a task has ever reported progress in this record. This is fast, because it reads a single word."""
        return self._words[self._progress_at] != 0

    def _mark_of(self, entry: bytes) -> int:
        """Return the mark of the task with this entry, which combines the nonce of the process and the number of the
        task. Returns 0 if that task is not the one that runs."""
        number = self._words[self._number_at]
        at = (self.copy_at(number) + TASK.entry + 1) * WORD
        is_it = number % 2 and self._bytes[at : at + len(entry)] == entry
        return (self._words[HEADER.nonce_copy] << _NONCE_SHIFT | number) & _WORD_MASK if is_it else 0

    def copy_at(self, number: int) -> int:
        """Return the position in the region, in words, of the copy that this task number selects."""
        return self._copies_at + ((number >> 1) & 1) * TASK_WORDS


def _packed(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def _unpacked(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
