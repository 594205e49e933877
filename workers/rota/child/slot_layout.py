"""The layout of the slots' memory, in words of 8 bytes.

The process table comes first (see `slots`), followed by one region per slot: header | record of the task with index 0 |
finished outcomes | metrics (see `recorder`) | marks and records of the further tasks, which only concurrent workers use
| log lines that are not written yet.

A record holds two copies of a task, and the task's progress (see `slot_record`). The mark of a task, two words that
identify it, is stored separately. So one read of all marks shows which task indexes are in use, even if there are
hundreds.

Each part is declared once, as a class whose fields have their numbers of words as defaults. `offsets` computes the
positions of the fields from these numbers.
"""

from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

WORD: Final = 8
_ENTRY_WORDS: Final = 55  # the longest entry has 374 bytes: two names of 128, six numbers of 16 digits, and separators
_NAME_WORDS: Final = 16
ENTRY_BYTES: Final = _ENTRY_WORDS * WORD
NAME_BYTES: Final = _NAME_WORDS * WORD
_PROGRESS_WORDS: Final = 26  # the first two words precede the text
PROGRESS_BYTES: Final = _PROGRESS_WORDS * WORD
MAX_CONCURRENCY: Final = 512  # the maximum number of tasks that a worker runs at once
LOG_BYTES: Final = 4096  # the maximum size of one write to the log: see `rota.telemetry.log`


class ProcessRowFields(NamedTuple):
    """The words of one slot in the process table. Only the master writes them, except for the pid. `ProcessRow`
    documents them."""

    nonce: int = 1
    pid: int = 1
    renewed_ns: int = 1
    prefetch_returned: int = 1
    quiet: int = 1
    watch_granted: int = 1  # the last value of `watch_requested` that the master has granted
    watched: int = 1
    concurrency: int = 1
    stacks_requested: int = 1


class MarkFields(NamedTuple):
    """Two words that identify a running task. A worker that runs up to N tasks at once has N marks, one for each task
    index from 0 to N-1."""

    number: int = 1  # odd while a task runs
    cancelled: int = 1  # the number of the task that the master cancelled last


class LoadFields(NamedTuple):
    """The words that record the load of a worker since its start: see `slot_load`."""

    started: int = 1  # number of tasks that were started
    occupied: int = 1  # number of task slots that are occupied
    since_ns: int = 1  # when the number of occupied task slots last changed (CLOCK_BOOTTIME)
    occupied_ns: int = 1  # time for which task slots were occupied until `since_ns`, added up over all task slots
    ended: int = 1  # number of tasks that ended; the next two words sum up their run times
    run_ns: int = 1
    # Sum of the squared run times in square seconds, stored as a double; the other fields are integers.
    squares: int = 1
    first_attempts: int = 1  # number of first attempts that ended
    first_failures: int = 1  # number of first attempts that failed


class HeaderFields(NamedTuple):
    """The words at the beginning of a slot's region."""

    # For the finished outcomes, one word holds the number of arguments, the position and the size. The word is written
    # at once, so the three numbers always match, even if the process is killed.
    outcomes: int = 1
    # A copy of the nonce in the process table. If the two differ, a task has overwritten the region.
    nonce_copy: int = 1
    phase: int = 1
    heartbeat_ns: int = 1
    mark: int = sum(MarkFields())  # the mark of task index 0
    watch_requested: int = 1  # when the worker last asked the master to watch this slot
    recycle_reason: int = 1  # why the worker requests its replacement (`RecycleReason`)
    shortest_soft_ns: int = 1  # see `Slot`
    shortest_soft_met_ns: int = 1  # see `Slot`
    stepping: int = 1  # 1 plus the index of the task whose coroutine runs now, or 0 if no coroutine runs
    held_lines: int = 1  # size in bytes of the log lines that are not written yet
    load: int = sum(LoadFields())
    unused: int = 3


class TaskFields(NamedTuple):
    """The words of one copy of a task. A text is stored as its length in one word, followed by its bytes."""

    started_ns: int = 1
    deadline_ns: int = 1
    claimed_ns: int = 1
    unstarted: int = 1
    soft_deadline_ns: int = 1
    kill_policy: int = 1
    entry: int = 1 + _ENTRY_WORDS
    name: int = 1 + _NAME_WORDS
    unused: int = 1


class RecordFields(NamedTuple):
    """The words of a record: two copies of a task, and the progress of the task."""

    copies: int = 2 * sum(TaskFields())
    progress: int = _PROGRESS_WORDS


class RegionFields(NamedTuple):
    """The parts of a slot's region, in their order. The metrics begin after 96 kB, and the marks of the further tasks
    after 1,056 kB. The whole region takes 1,824 kB."""

    header: int = sum(HeaderFields())
    record: int = sum(RecordFields())  # the record of task index 0
    outcomes: int = (96 << 10) // WORD - header - record
    metrics: int = (960 << 10) // WORD
    further_marks: int = (MAX_CONCURRENCY - 1) * sum(MarkFields())  # the marks of all task indexes except 0
    further_records: int = (MAX_CONCURRENCY - 1) * sum(RecordFields())  # the records of all task indexes except 0
    held_lines: int = LOG_BYTES // WORD
    unused: int = (768 << 10) // WORD - further_marks - further_records - held_lines


Fields = TypeVar(
    "Fields", ProcessRowFields, MarkFields, LoadFields, HeaderFields, TaskFields, RecordFields, RegionFields
)


def offsets(sizes: Fields) -> Fields:
    """Return the position of each field, in words from the beginning. `sizes` contains the number of words that each
    field takes."""
    return type(sizes)._make(accumulate(sizes[:-1], initial=0))


PROCESS_ROW: Final = offsets(ProcessRowFields())
PROCESS_ROW_WORDS: Final = sum(ProcessRowFields())  # number of words per slot
PROCESS_ROW_BYTES: Final = PROCESS_ROW_WORDS * WORD
MARK: Final = offsets(MarkFields())
MARK_WORDS: Final = sum(MarkFields())
LOAD: Final = offsets(LoadFields())
LOAD_WORDS: Final = sum(LoadFields())
HEADER: Final = offsets(HeaderFields())
TASK: Final = offsets(TaskFields())
TASK_WORDS: Final = sum(TaskFields())
RECORD: Final = offsets(RecordFields())
RECORD_WORDS: Final = sum(RecordFields())
REGION: Final = offsets(RegionFields())
REGION_BYTES: Final = sum(RegionFields()) * WORD
OUTCOMES_AT: Final = REGION.outcomes * WORD
METRICS_AT: Final = REGION.metrics * WORD
METRICS_END: Final = REGION.further_marks * WORD
HELD_LINES_AT: Final = REGION.held_lines * WORD


def mark_at(task_index: int) -> int:
    """Return the position in the region, in words, of the mark of the task with this index."""
    return HEADER.mark if task_index == 0 else REGION.further_marks + (task_index - 1) * MARK_WORDS


def record_at(task_index: int) -> int:
    """Return the position in the region, in words, of the record of the task with this index."""
    return REGION.record if task_index == 0 else REGION.further_records + (task_index - 1) * RECORD_WORDS
