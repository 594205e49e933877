"""The steps that the nemesis takes for one fault. The nemesis chooses the steps first, so that it can record the fault
before the fault begins.
"""

import contextlib
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil


def nothing() -> None:
    """Do nothing."""


def at_once() -> bool:
    """Return True. Faults whose effects end as soon as they are undone use this as `is_over`."""
    return True


def no_words() -> str:
    """Return "". Faults that need no check use this as `odd`."""
    return ""


@dataclass(frozen=True, slots=True)
class Act:
    """The steps of a fault. `do` begins the fault, `again` is called repeatedly while the fault lasts, and `undo` ends
    the fault. The effects of the fault last until `is_over` returns True.

    `odd` is called before the fault is undone. It returns a description of anything that is wrong, or "". `pids` has
    the processes that are killed or stopped.
    """

    do: Callable[[], object] = nothing
    again: Callable[[], object] = nothing
    undo: Callable[[], object] = nothing
    is_over: Callable[[], bool] = at_once
    odd: Callable[[], str] = no_words
    pids: tuple[int, ...] = ()
    detail: str = ""


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that is still alive. A pid that was reused is skipped."""
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
    """Whether the process is still alive. A zombie does not count as alive, and neither does another process that now
    has the same pid.
    """
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(processes: list[psutil.Process], detail: str = "") -> Act:
    """Return the steps of a fault that sends SIGKILL to these processes."""
    return Act(lambda: send(processes, signal.SIGKILL), pids=_pids(processes), detail=detail)


def stop(processes: list[psutil.Process], detail: str = "") -> Act:
    """Return the steps of a fault that sends SIGSTOP to these processes, and SIGCONT when it is undone."""
    return Act(
        lambda: send(processes, signal.SIGSTOP),
        undo=lambda: send(processes, signal.SIGCONT),
        pids=_pids(processes),
        detail=detail,
    )


def _pids(processes: Iterable[psutil.Process]) -> tuple[int, ...]:
    return tuple(process.pid for process in processes)
