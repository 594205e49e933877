"""The exit codes of `rota`, taken from sysexits.h where possible. `docs/cli.md` contains the same table."""

import sys
from enum import IntEnum
from types import TracebackType

from rota.display_text import printable_lines


class ExitCode(IntEnum):
    """An exit code of `rota`, which states why the command exited."""

    CLEAN = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 69
    GAVE_UP = 70
    TAKEN = 73
    OUTPUT = 74
    CONFIG = 78


MEANINGS = {
    ExitCode.CLEAN: "success",
    ExitCode.NO: "the result is negative, for example because the fleet is unhealthy, tasks are missing, or the id is "
    "unknown",
    ExitCode.USAGE: "the command line is not valid",
    ExitCode.UNREACHABLE: "Redis or the master is not reachable",
    ExitCode.GAVE_UP: "the master gave up after a crash loop",
    ExitCode.TAKEN: "the pid file, the socket, the port or the file to write is already in use or cannot be created",
    ExitCode.OUTPUT: "the output cannot be written, for example because the disk is full",
    ExitCode.CONFIG: "the configuration, the code or the server cannot be used, or a package is not installed",
}


class Failure(Exception):
    """A failure that ends a command or the master, with an exit code and messages that state what is wrong and what to
    do."""

    def __init__(self, code: ExitCode, *messages: str) -> None:
        super().__init__("; ".join(messages))
        self.code = code
        self.messages = messages


def print_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error, as the `sys.excepthook` of Rota's processes. The text is escaped, because it may contain
    unsafe input."""
    import traceback  # noqa: PLC0415 - poller and exporter do not need it until something fails

    sys.stderr.write(printable_lines("".join(traceback.format_exception(kind, error, trace))))
