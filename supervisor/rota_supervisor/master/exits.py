"""How the master ends when it cannot go on: a message for people, and the exit code."""

from enum import IntEnum


class MasterExit(IntEnum):
    """The exit codes of a master, of those in `docs/cli.md`."""

    CLEAN = 0
    UNREACHABLE = 69
    GAVE_UP = 70
    TAKEN = 73
    CONFIG = 78


class CannotRun(Exception):
    """The fleet cannot be run; each message says what is wrong and what to do."""

    def __init__(self, code: MasterExit, *texts: str) -> None:
        super().__init__("; ".join(texts))
        self.code = code
        self.texts = texts
