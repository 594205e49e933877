"""Quiet: the fleet claims nothing for now, and stays. Who asked decides who may undo it."""

from enum import Enum, auto


class Quiet(Enum):
    """OFF, or asked for by TSTP or by a person. CONT undoes only what TSTP did: the kernel sends it, shells and
    debuggers do, to go on with a master that was stopped."""

    OFF = auto()
    BY_SIGNAL = auto()
    BY_PERSON = auto()

    @property
    def is_asked(self) -> bool:
        """Whether workers are to be quiet."""
        return self is not Quiet.OFF

    def quieted(self, *, by_signal: bool) -> "Quiet":
        """After a request to be quiet; a person's is the stronger one."""
        return self if by_signal and self.is_asked else Quiet.BY_SIGNAL if by_signal else Quiet.BY_PERSON

    def resumed(self, *, by_signal: bool) -> "Quiet":
        """After a request to go on."""
        return self if by_signal and self is Quiet.BY_PERSON else Quiet.OFF
