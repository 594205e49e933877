"""The roster: the words of a slot that its process cannot write.

Children map it for reading. Only the master writes there, and whoever moves in its own number, before any code of the
application runs. So nothing that a task does to its slot has the master, the zygote or the exporter take another
process for it, or lifts the fence that its lease puts up.
"""

from typing import Any

from rota.child.slot_layout import HEADER, ROSTER, ROSTER_WORDS

# Looked up several times a task.
_SEAL, _NONCE, _QUIET, _RECALLED = HEADER.seal, ROSTER.nonce, ROSTER.quiet, ROSTER.recalled


def pids_on(roster: memoryview) -> list[int]:
    """The processes in all slots, by slot; 0 where there is none."""
    return roster.cast("q")[ROSTER.pid :: ROSTER_WORDS].tolist()


def _word(at: int) -> Any:
    """A word of the roster, as an attribute."""

    def read(self: "RosterPart") -> int:
        return self._roster[at]

    def write(self: "RosterPart", value: int) -> None:
        self._roster[at] = value

    return property(read, write)


class RosterPart:
    """What the roster says of one slot, beside the region that is sealed with it."""

    nonce: int = _word(ROSTER.nonce)
    """The life that the slot was given to."""
    pid: int = _word(ROSTER.pid)
    """The process that took the slot; 0 before, and when it is reaped."""
    renewed_ns: int = _word(ROSTER.renewed_ns)
    """When the last successful renewal of this owner's lease was sent (CLOCK_BOOTTIME)."""
    recalled: int = _word(ROSTER.recalled)
    """The number of the task for whose sake the master last recalled; 0 before the first time. It is written before the
    call is sent, so whoever finds an outcome settled already finds this as well."""
    places: int = _word(ROSTER.places)
    """How many tasks its process runs at once, at most."""
    stacks_asked: int = _word(ROSTER.stacks_asked)
    """How often its process was asked where its coroutines are. Written first; then comes WAKE_SIGNAL."""

    def __init__(self, region: memoryview, roster: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")
        self._roster = roster.cast("q")

    @property
    def is_intact(self) -> bool:
        """Whether nothing has written over the whole of the region. Of one that is not, nothing is believed."""
        return self._words[_SEAL] == self._roster[_NONCE]

    def is_undisturbed(self, recalled: int) -> bool:
        """Whether it is intact, and nothing was recalled since that was `recalled`; asked after each task."""
        roster = self._roster
        return self._words[_SEAL] == roster[_NONCE] and roster[_RECALLED] == recalled

    @property
    def quiet_asked(self) -> bool:
        """Whether the worker is to claim nothing, until this is taken back. Written first; then comes WAKE_SIGNAL."""
        return self._roster[_QUIET] != 0

    @quiet_asked.setter
    def quiet_asked(self, asked: bool) -> None:
        self._roster[_QUIET] = asked

    @property
    def is_watched(self) -> bool:
        """Whether the master looks every few milliseconds if what waits behind a task is held up."""
        return self._roster[ROSTER.watched] != 0

    def end_watch(self) -> None:
        """Watch the slot no more: master's side. Whoever claims next asks again."""
        self._roster[ROSTER.watched] = 0
