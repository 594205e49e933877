"""Calls into the application's code, which may raise what it likes, and may fork."""

import mmap
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from rota.telemetry import events, log

_EXIT_RAISED: Final = 1
_MADV_WIPEONFORK: Final = 18  # of Linux since 4.14; mmap has no name for it


class NoCopies:
    """Around such a call: a copy, which it forked, of the process that made this ends here when it comes back from it.

    By `os._exit`, with the code Python would have given it: beyond the block it would be a second worker of the same
    owner, and whatever this process has buffered or registered to be done at its end is this one's to do. It is known
    by a page that the kernel wipes in every copy, whoever forked it; asking for the pid instead, a system call after
    each task, made short ones a tenth slower.
    """

    __slots__ = ("_page",)

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._page.madvise(_MADV_WIPEONFORK)
        self._page[0] = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not self._page[0]:
            _leave(error)


def call_hook(hook: Callable[..., object], *args: Any) -> str:
    """Call a hook. When it fails, the log has the error; the answer, "" if not, says that without the error's text."""
    try:
        with NoCopies():
            hook(*args)
    except BaseException as error:  # noqa: BLE001 - the application's code: whatever it raises, it is said
        name = f"{hook.__module__}.{hook.__qualname__}"
        log.logger().error(events.HOOK_FAILED, hook=name, exc_info=error)
        return f"{name} raised {type(error).__name__}"
    return ""


def _leave(error: BaseException | None) -> None:
    code = _EXIT_RAISED
    try:
        code = _exit_code(error)
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=words):
            print(words, file=sys.stderr)  # noqa: T201 - as sys.exit("...") does
        case _:
            sys.excepthook(type(error), error, error.__traceback__)
    return _EXIT_RAISED
