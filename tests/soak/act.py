"""What the nemesis does for one fault: chosen first, so that it can be written down before it is done."""

import contextlib
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil


def nothing() -> None:
    """Do nothing."""


def at_once() -> bool:
    """It is over as soon as it was undone."""
    return True


def no_words() -> str:
    """Nothing is odd."""
    return ""


@dataclass(frozen=True, slots=True)
class Act:
    """`do` begins it, `again` is repeated while it lasts, `undo` ends it; then it is over when `is_over` says so.

    `odd` is asked before it is undone: what should not be so, in words. `pids` are the processes that are killed or
    stopped.
    """

    do: Callable[[], object] = nothing
    again: Callable[[], object] = nothing
    undo: Callable[[], object] = nothing
    is_over: Callable[[], bool] = at_once
    odd: Callable[[], str] = no_words
    pids: tuple[int, ...] = ()
    detail: str = ""


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal each that still lives and is the same process."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def living(pids: Iterable[int]) -> list[psutil.Process]:
    """The processes of these numbers, of those that live."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def lives(process: psutil.Process) -> bool:
    """Whether it is still the same process and no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(processes: list[psutil.Process], detail: str = "") -> Act:
    """SIGKILL."""
    return Act(lambda: send(processes, signal.SIGKILL), pids=_pids(processes), detail=detail)


def stop(processes: list[psutil.Process], detail: str = "") -> Act:
    """SIGSTOP, then SIGCONT."""
    return Act(
        lambda: send(processes, signal.SIGSTOP),
        undo=lambda: send(processes, signal.SIGCONT),
        pids=_pids(processes),
        detail=detail,
    )


def _pids(processes: Iterable[psutil.Process]) -> tuple[int, ...]:
    return tuple(process.pid for process in processes)
