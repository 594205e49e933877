"""The task that a slot names, as it is read there."""

from typing import Final, NamedTuple

from rota.protocol.keys import is_name

UNKNOWN_TASK: Final = "_unknown"  # the name, in metrics and logs, of a task that is not registered or not read yet


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
