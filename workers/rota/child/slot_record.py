"""The record of one task in a slot: two copies and a number flipped last. Even numbers mean that nothing runs.

A worker of one task has one record, that of place 0; one that runs several has as many. The master knows a task by its
place and number.

Beside the copies the record holds the task's progress: one text, written by any thread of the task, and by processes
that it forks. It has a checksum, its length, and the mark of its task (life and number), so that no reader takes it for
that of another task. It is written by one assignment, which copies its bytes; that may be under way while another
process reads. So a reader looks again until the checksum agrees. A lock would not do: a fork that another thread makes
meanwhile would keep it locked in the copy.
"""

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from rota.child.slot_layout import (
    ENTRY_BYTES,
    HEADER,
    MARK,
    NAME_BYTES,
    PROGRESS_BYTES,
    RECORD,
    ROSTER,
    TASK,
    TASK_WORDS,
    WORD,
    mark_at,
    record_at,
)
from rota.protocol.keys import UNKNOWN_TASK, is_name
from rota.protocol.progress import LONGEST

_LENGTH_AT, _MARK_AT, _TEXT_AT = 4, 8, 16
_LOOKS: Final = 16  # tries to read a task that changes meanwhile; then it reads as none. A try takes 3 us, a task 50
_LIFE_SHIFT: Final = 40  # a place of a life sees fewer tasks
_WORD_MASK: Final = (1 << 64) - 1
# By global names, as a worker looks most of these up in each task.
_STARTED, _DEADLINE, _SOFT_DEADLINE = TASK.started_ns, TASK.deadline_ns, TASK.soft_deadline_ns
_CLAIMED, _UNSTARTED, _VERDICT, _ENTRY, _NAME = TASK.claimed_ns, TASK.unstarted, TASK.verdict, TASK.entry, TASK.name
_NUMBERS: Final = (_STARTED, _DEADLINE, _CLAIMED, _UNSTARTED, _SOFT_DEADLINE, _VERDICT)  # as TaskInSlot has them
_COPY: Final = Struct(f"{_ENTRY + 1}q{ENTRY_BYTES}sq")  # a task's fields up to the length of its name
_SEAL, _NONCE, _BEAT, _STEPPING = HEADER.seal, ROSTER.nonce, HEADER.beat_ns, HEADER.stepping


def name_in(raw: bytes) -> str:
    """The name of a task; it becomes the label of a series, so it must be one that a task can have."""
    name = raw.decode(errors="replace")
    return name if is_name(name) else UNKNOWN_TASK


_CRASH_LIMIT_BITS: Final = 10  # room for MOST_CRASHES
_CRASH_LIMIT_MASK: Final = (1 << _CRASH_LIMIT_BITS) - 1
_LONGEST_DELAY_US: Final = 1 << 52  # over a hundred years
_DEAD: Final = 1
_RETRY: Final = 2


class Verdict(NamedTuple):
    """What is to become of a task whose worker is killed in the middle of it. The worker says so at the start, as its
    master imports no user code; in the slot it is one word.

    `retry_us`: when it runs again after its hard time limit, None for never; only if `is_said`, else that counts as a
    crash. `crash_limit`: its own, 0 for the fleet's.
    """

    is_said: bool = False
    retry_us: int | None = None
    crash_limit: int = 0

    def to_word(self) -> int:
        said = _DEAD if self.retry_us is None else _RETRY + min(self.retry_us, _LONGEST_DELAY_US)
        return (said if self.is_said else 0) << _CRASH_LIMIT_BITS | self.crash_limit

    @classmethod
    def from_word(cls, word: int) -> "Verdict":
        """Anything may stand in a slot: what no worker writes says nothing."""
        said, crash_limit = word >> _CRASH_LIMIT_BITS, word & _CRASH_LIMIT_MASK
        if not 0 <= said <= _RETRY + _LONGEST_DELAY_US:
            return cls()
        return cls(said > 0, said - _RETRY if said >= _RETRY else None, crash_limit)


class TaskInSlot(NamedTuple):
    """A task that a worker runs: its entry's text, its `name` (UNKNOWN_TASK while its body is not read yet).

    `started_ns`, `deadline_ns`, `soft_deadline_ns` (0 for none) and `claimed_ns` in CLOCK_BOOTTIME; `unstarted`: how
    many entries of the same claim come after it. `verdict`: see Verdict. `place`: where in the slot it stands, and
    `number`: of the task among those of this life in that place.
    """

    entry: bytes
    name: str
    started_ns: int
    deadline_ns: int
    claimed_ns: int = 0
    unstarted: int = 0
    soft_deadline_ns: int = 0
    verdict: int = 0
    place: int = 0
    number: int = 0

    @property
    def id(self) -> str:
        return self._field(0)

    @property
    def queue(self) -> str:
        return self._field(1)

    @property
    def due(self) -> str:
        """Redis time in microseconds."""
        return self._field(3)

    @property
    def ready(self) -> str:
        """Redis time in microseconds: one task of an id is told from the next by it."""
        return self._field(4)

    def _field(self, number: int) -> str:
        fields = self.entry.split(b" ")
        return fields[number].decode(errors="replace") if number < len(fields) else ""


class TaskTimes(NamedTuple):
    """When a task began, and its deadlines, and by which place and number it is known, as `TaskInSlot` has them."""

    started_ns: int
    deadline_ns: int
    soft_deadline_ns: int
    number: int
    place: int = 0


class HeldUp(NamedTuple):
    """A task, and the `outcomes` of those that ran before it and are not known to be settled: how many arguments, and
    their wire form."""

    task: TaskInSlot
    outcomes: tuple[int, bytes]


class TaskRecord:
    """One place of a slot. Written by its process; but for the word `cancelled`, which is its master's."""

    __slots__ = (
        "_base",
        "_bytes",
        "_cancelled_at",
        "_copies_at",
        "_number_at",
        "_progress_at",
        "_roster",
        "_words",
        "place",
    )

    def __init__(self, place: int, region: memoryview, words: memoryview, roster: memoryview) -> None:
        self.place = place
        self._bytes = region
        self._words = words
        self._roster = roster
        self._number_at = mark_at(place)
        self._copies_at = record_at(place) + RECORD.copies
        self._progress_at = record_at(place) + RECORD.progress
        self._cancelled_at = self._number_at + MARK.cancelled
        self._base = self._copies_at

    # The worker's side

    def start(  # noqa: PLR0917 - as TaskInSlot has them: each task passes here
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
        """Publish the task about to run; returns its number. A `name` of "" and its verdict follow by `name`."""
        words, number_at = self._words, self._number_at
        number = (words[number_at] + 1) | 1
        base = self._base = self._copies_at + ((number >> 1) & 1) * TASK_WORDS
        # Not word by word: nobody believes anything of this copy before the number says that it counts.
        _COPY.pack_into(
            self._bytes,
            base * WORD,
            started_ns,
            deadline_ns,
            claimed_ns,
            unstarted,
            soft_deadline_ns,
            verdict,
            len(entry),
            entry,
            0,
        )
        if name:
            self._put_text(base + _NAME, name.encode()[:NAME_BYTES])
        words[number_at] = number
        return number

    def name(self, name: str, verdict: int = 0) -> None:
        """Name the task that `start` published without a name."""
        words, at, raw = self._words, self._base + _NAME, name.encode()[:NAME_BYTES]
        words[self._base + _VERDICT] = verdict
        begin = (at + 1) * WORD
        self._bytes[begin : begin + len(raw)] = raw
        words[at] = len(raw)  # last, as in `_put_text`: until now it was 0

    def begin(self, entry: bytes, started_ns: int) -> None:
        """It starts only now, and its entry has another text."""
        self._words[self._base + _STARTED] = started_ns
        self._put_text(self._base + _ENTRY, entry[:ENTRY_BYTES])

    def extend(self, deadline_ns: int, soft_deadline_ns: int) -> None:
        """Move the deadlines of the current task; 0 for no soft one."""
        words, base = self._words, self._base
        words[base + _SOFT_DEADLINE] = soft_deadline_ns
        words[base + _DEADLINE] = deadline_ns

    def beat(self, at_ns: int) -> None:
        """The task says that it is alive. That is a sign of life of its process where no other task runs; with several,
        a thread of one could hide that the loop of all stands still."""
        if self._roster[ROSTER.places] <= 1:
            self._words[_BEAT] = at_ns

    def end(self) -> None:
        """Publish that nothing runs."""
        self._words[self._number_at] += 1

    def is_cancelled(self) -> bool:
        """Whether the task that runs was cancelled. Two zeros are of a slot that was wiped."""
        words = self._words
        return words[self._cancelled_at] == words[self._number_at] != 0

    def enter_step(self) -> None:
        """A step of the task's coroutine begins, which holds up all others."""
        self._words[_STEPPING] = self.place + 1

    def leave_step(self) -> None:
        """The step is over."""
        self._words[_STEPPING] = 0

    # Both sides

    @property
    def cancelled(self) -> int:
        """The number of the task that was cancelled last while it ran; 0 before the first time. Written first; then
        comes SOFT_LIMIT_SIGNAL."""
        return self._words[self._cancelled_at]

    @cancelled.setter
    def cancelled(self, number: int) -> None:
        self._words[self._cancelled_at] = number

    @property
    def number(self) -> int:
        """The number of the task that runs among those of this life in this place; even when nothing runs. 0 in a slot
        that was written over."""
        return self._words[self._number_at] if self._words[_SEAL] == self._roster[_NONCE] else 0

    def current(self) -> TaskInSlot | None:
        """The task that runs, or that ran when the process died; None when there is none."""
        words = self._words
        for _ in range(_LOOKS):
            number = self.number
            if number % 2 == 0:
                return None
            base = self.copy_at(number)
            texts = self._get_text(base + _ENTRY, ENTRY_BYTES), name_in(self._get_text(base + _NAME, NAME_BYTES))
            numbers = [*(words[base + field] for field in _NUMBERS), self.place, number]
            task = TaskInSlot(*texts, *numbers)
            if self.number == number:
                return task
        return None

    def times(self) -> TaskTimes | None:
        """Of the task that runs, without its texts: the master looks at all slots many times a second."""
        words = self._words
        for _ in range(_LOOKS):
            number = self.number
            if number % 2 == 0:
                return None
            base = self.copy_at(number)
            deadlines = words[base + _DEADLINE], words[base + _SOFT_DEADLINE]
            times = TaskTimes(words[base + _STARTED], *deadlines, number, self.place)
            if self.number == number:
                return times
        return None

    @property
    def unstarted(self) -> int:
        """How many entries come after the task that runs."""
        return self._words[self.copy_at(self.number) + _UNSTARTED]

    def _put_text(self, word: int, raw: bytes) -> None:
        # No length while the bytes change: whoever reads in between, or after a kill, finds no text, never half of one.
        at = (word + 1) * WORD
        self._words[word] = 0
        self._bytes[at : at + len(raw)] = raw
        self._words[word] = len(raw)

    def _get_text(self, word: int, most: int) -> bytes:
        at = (word + 1) * WORD
        return bytes(self._bytes[at : at + max(0, min(self._words[word], most))])

    # Progress: nothing of it is touched for a task that reports none

    def report_progress(self, entry: bytes, text: bytes) -> None:
        """Publish how far the task of this entry is. Nothing is written when another one runs here, or none: then
        whoever says so was left behind by an earlier task."""
        mark = self._mark_of(entry)
        if mark and len(text) <= LONGEST:
            body = b"%b%b%b" % (_word(len(text), 4), _word(mark, 8), text)
            said = _word(crc32(body), 4) + body
            at = self._progress_at * WORD
            self._bytes[at : at + len(said)] = said

    def progress_of(self, entry: bytes) -> bytes:
        """How far the task of this entry says it is; b"" when it says nothing, or does not run here."""
        if not self.has_progress:
            return b""
        mark, at = self._mark_of(entry), self._progress_at * WORD
        for _ in range(_LOOKS):
            said = bytes(self._bytes[at : at + PROGRESS_BYTES])
            body = said[_LENGTH_AT : _TEXT_AT + min(_number(said[_LENGTH_AT:_MARK_AT]), LONGEST)]
            if crc32(body) == _number(said[:_LENGTH_AT]):
                is_its_own = mark and _number(said[_MARK_AT:_TEXT_AT]) == mark
                return body[_TEXT_AT - _LENGTH_AT :] if is_its_own else b""
        return b""

    @property
    def has_progress(self) -> bool:
        """Whether a task ever reported any here; a look at one word."""
        return self._words[self._progress_at] != 0

    def _mark_of(self, entry: bytes) -> int:
        """What tells the task that runs from all before it, if its entry is this one; else 0."""
        number = self._words[self._number_at]
        at = (self.copy_at(number) + TASK.entry + 1) * WORD
        is_it = number % 2 and self._bytes[at : at + len(entry)] == entry
        return (self._words[HEADER.seal] << _LIFE_SHIFT | number) & _WORD_MASK if is_it else 0

    def copy_at(self, number: int) -> int:
        """The word at which the copy stands that this number publishes."""
        return self._copies_at + ((number >> 1) & 1) * TASK_WORDS


def _word(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
