"""The words of a slot that its process cannot write: what the master tells it, and which process it is.

They stand together on the *roster*, which children map for reading. Only the master writes there, and whoever moves in
its number, before any code of the application runs. So nothing that a task does to its own slot has the master, the
zygote or the exporter take another process for it, or takes the fence away that its lease puts up.
"""

from typing import Final

WORD: Final = 8
TOLD_WORDS: Final = 8
TOLD_BYTES: Final = TOLD_WORDS * WORD
_NONCE, _PID, _RENEWED, _RECALLED, _QUIET, _GRANTED, _WATCHED = range(7)
# Of the region itself, so that a reader knows whether it was written over: the nonce again.
_SEAL: Final = 1


def pids_on(roster: memoryview) -> list[int]:
    """The processes in all slots, by slot; 0 where there is none."""
    return roster.cast("q")[_PID::TOLD_WORDS].tolist()


class ToldSlot:
    """A region with its part of the roster."""

    def __init__(self, region: memoryview, told: memoryview) -> None:
        self._bytes = region
        self._words = region.cast("q")
        self._told = told.cast("q")

    @property
    def nonce(self) -> int:
        """The life that the slot was given to."""
        return self._told[_NONCE]

    @property
    def is_intact(self) -> bool:
        """Whether nothing has written over the whole of the region. Of one that is not, nothing is believed."""
        return self._words[_SEAL] == self._told[_NONCE]

    def _give_to(self, nonce: int) -> None:
        told = self._told
        told[_PID] = told[_RECALLED] = told[_QUIET] = told[_WATCHED] = 0
        self._words[_SEAL] = told[_NONCE] = nonce

    @property
    def pid(self) -> int:
        """The process that took the slot; 0 before, and when it is reaped."""
        return self._told[_PID]

    def _set_pid(self, pid: int) -> None:
        self._told[_PID] = pid

    @property
    def renewed_ns(self) -> int:
        """When the last successful renewal of this owner's lease was sent (CLOCK_BOOTTIME)."""
        return self._told[_RENEWED]

    @renewed_ns.setter
    def renewed_ns(self, at_ns: int) -> None:
        self._told[_RENEWED] = at_ns

    @property
    def quiet_asked(self) -> bool:
        """Whether the worker is to claim nothing, until this is taken back. Written first; then comes WAKE_SIGNAL."""
        return self._told[_QUIET] != 0

    @quiet_asked.setter
    def quiet_asked(self, asked: bool) -> None:
        self._told[_QUIET] = asked

    @property
    def recalled(self) -> int:
        """The number of the task for whose sake the master last recalled; 0 before the first time. It is written
        before the call is sent, so whoever finds an outcome settled already finds this as well."""
        return self._told[_RECALLED]

    @recalled.setter
    def recalled(self, number: int) -> None:
        self._told[_RECALLED] = number

    @property
    def is_watched(self) -> bool:
        """Whether the master looks every few milliseconds if a claim of several tasks is held up."""
        return self._told[_WATCHED] != 0

    def _grant(self, asked: int) -> bool:
        """Watch, if this is another request than the one granted last."""
        if asked == self._told[_GRANTED]:
            return False
        self._told[_GRANTED] = asked
        self._told[_WATCHED] = 1
        return True

    def end_watch(self) -> None:
        """Watch the slot no more: master's side. Whoever claims next asks again."""
        self._told[_WATCHED] = 0
