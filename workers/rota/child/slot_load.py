"""The load of a worker in its slot: how many tasks it has started, for how long its task slots were occupied, and how
long its tasks ran. From the loads, the master computes how many workers a pool needs.

A task slot becomes occupied when a reply returns a task. It becomes free at the first reply after the end of the task,
unless that reply returns another task. So the short time between two tasks of a busy worker counts, but the time for
which a worker waits for tasks does not. The worker updates the sum of the times only when the number of occupied task
slots changes. A reader adds the time since the last change.

A worker writes these words a few times per turn, not for each task. In each new process, they start at 0.
"""

import math
from typing import Final, NamedTuple

from rota.child.slot_layout import HEADER, LOAD, LOAD_WORDS, WORD, LoadFields
from rota.durations import NANOSECONDS

_FIRST: Final = HEADER.load
_END: Final = HEADER.load + LOAD_WORDS
_OCCUPIED: Final = HEADER.load + LOAD.occupied
_OCCUPIED_NS: Final = HEADER.load + LOAD.occupied_ns
_SINCE: Final = HEADER.load + LOAD.since_ns
_STARTED: Final = HEADER.load + LOAD.started
_READ_ATTEMPTS: Final = 4
_MOST: Final = 1 << 62  # larger than any sum that a worker can reach


class Load(NamedTuple):
    """The load of one process from its start to a given time. All numbers except `occupied` can only grow."""

    started: int = 0  # number of tasks that were started
    occupied: int = 0  # number of task slots that are occupied now
    occupied_seconds: float = 0.0  # time for which task slots were occupied, added up over all task slots
    ended: int = 0  # number of tasks that ended
    run_seconds: float = 0.0  # sum of the run times of the tasks that ended
    squares: float = 0.0  # sum of the squares of the run times, in square seconds
    first_attempts: int = 0  # number of first attempts that ended
    first_failures: int = 0  # number of first attempts that failed


class SlotLoad:
    """The words of one slot that record the load of its worker. The worker writes them from its own copies of the sums,
    which a task cannot overwrite."""

    __slots__ = (
        "_occupied",
        "_occupied_ns",
        "_since_ns",
        "_squares_at",
        "_words",
        "ended",
        "first_failures",
        "later_attempts",
        "run_ns",
        "squares_ns",
        "started",
    )

    def __init__(self, region: memoryview, words: memoryview) -> None:
        self._words = words
        at = (HEADER.load + LOAD.squares) * WORD
        self._squares_at = region[at : at + WORD].cast("d")
        self.started = self.ended = 0  # numbers of tasks that were started, and that ended
        self.run_ns = self.squares_ns = 0  # sums of the run times and of their squares
        self.later_attempts = 0  # number of ended attempts that were not the first attempt of their task
        self.first_failures = 0  # number of first attempts that failed
        self._occupied = self._occupied_ns = self._since_ns = 0

    def clear(self) -> None:
        """Set all words to 0, for a new process. The master calls this."""
        for word in range(_FIRST, _END):
            self._words[word] = 0

    # Methods that the worker calls

    def occupy(self, task_slots: int, at_ns: int) -> None:
        """Record how many task slots are occupied from `at_ns` on."""
        if task_slots == self._occupied:
            return
        words = self._words
        at_ns = max(at_ns, self._since_ns)
        self._occupied_ns += self._occupied * (at_ns - self._since_ns)
        # Until the last of these writes, a reader computes too short a time rather than too long a time.
        words[_OCCUPIED] = 0
        words[_OCCUPIED_NS] = self._occupied_ns
        words[_SINCE] = self._since_ns = at_ns
        words[_OCCUPIED] = self._occupied = task_slots

    def show_started(self, also: int = 0) -> None:
        """Write the number of started tasks into the slot. `also` is the number of tasks that start now and that the
        attribute `started` does not include yet."""
        self._words[_STARTED] = self.started + also

    def ran(self, run_ns: int) -> None:
        """Count a task that ended."""
        self.ended += 1
        self.run_ns += run_ns
        self.squares_ns += run_ns * run_ns

    def show(self) -> None:
        """Publish all counters except the ones that `occupy` writes."""
        words = self._words
        first = _FIRST
        words[first + LOAD.started] = self.started
        words[first + LOAD.ended] = self.ended
        words[first + LOAD.run_ns] = self.run_ns
        words[first + LOAD.first_attempts] = self.ended - self.later_attempts
        words[first + LOAD.first_failures] = self.first_failures
        self._squares_at[0] = self.squares_ns / (NANOSECONDS * NANOSECONDS)

    # Methods that the master calls

    def read(self, task_slots: int, at_ns: int) -> Load | None:
        """Return the load at the time `at_ns` of a process with this many task slots.

        Returns None if the values are not valid, for example because a task has overwritten the slot, or if they change
        during every attempt to read them.
        """
        for _ in range(_READ_ATTEMPTS):
            numbers = self._words[_FIRST:_END].tolist()
            squares = self._squares_at[0]
            if numbers == self._words[_FIRST:_END].tolist():
                return _load_of(LoadFields._make(numbers), squares, task_slots, at_ns)
        return None


def _load_of(words: LoadFields, squares: float, task_slots: int, at_ns: int) -> Load | None:
    counts = (words.started, words.occupied_ns, words.ended, words.run_ns, words.first_attempts, words.first_failures)
    is_sane = (
        all(0 <= count < _MOST for count in counts)
        and 0 <= words.occupied <= task_slots
        and words.since_ns >= 0
        and words.first_failures <= words.first_attempts
        and math.isfinite(squares)
        and squares >= 0
    )
    if not is_sane:
        return None
    occupied_ns = words.occupied_ns + words.occupied * max(0, at_ns - words.since_ns)
    return Load(
        words.started,
        words.occupied,
        occupied_ns / NANOSECONDS,
        words.ended,
        words.run_ns / NANOSECONDS,
        squares,
        words.first_attempts,
        words.first_failures,
    )
