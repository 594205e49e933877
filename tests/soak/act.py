"""The steps of the nemesis for one fault. They are chosen first, so that they can be recorded before they are done."""

import contextlib
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil


def nothing() -> None:
    """Do nothing."""


def at_once() -> bool:
    """Return that the fault has ended as soon as it was undone."""
    return True


def no_words() -> str:
    """Return "", because nothing is odd."""
    return ""


@dataclass(frozen=True, slots=True)
class Act:
    """The steps of a fault: `do` begins it, `again` is repeated while it lasts, `undo` ends it. Then it lasts until
    `is_over` returns True.

    `odd` is called before the fault is undone, and returns a text about anything that is wrong, or "". `pids` are the
    processes that are killed or stopped.
    """

    do: Callable[[], object] = nothing
    again: Callable[[], object] = nothing
    undo: Callable[[], object] = nothing
    is_over: Callable[[], bool] = at_once
    odd: Callable[[], str] = no_words
    pids: tuple[int, ...] = ()
    detail: str = ""


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that still lives and has kept its pid."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def living(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the living processes with these pids."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def lives(process: psutil.Process) -> bool:
    """Whether the process still lives, with the same identity, and is no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(processes: list[psutil.Process], detail: str = "") -> Act:
    """Return the act of a SIGKILL."""
    return Act(lambda: send(processes, signal.SIGKILL), pids=_pids(processes), detail=detail)


def stop(processes: list[psutil.Process], detail: str = "") -> Act:
    """Return the act of a SIGSTOP, followed by a SIGCONT."""
    return Act(
        lambda: send(processes, signal.SIGSTOP),
        undo=lambda: send(processes, signal.SIGCONT),
        pids=_pids(processes),
        detail=detail,
    )


def _pids(processes: Iterable[psutil.Process]) -> tuple[int, ...]:
    return tuple(process.pid for process in processes)
