"""How a process ended, and for which reason a child died. `account` puts together what is said of it."""

import os
import signal
from dataclasses import dataclass

from rota.child.life import EXIT_DRAINED, EXIT_LOST
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.reasons import RECYCLED, Reason


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended. `oom_killed`: the kernel counted a kill for want of memory that no other death explains;
    `max_rss_kb` includes the pages it shared with its zygote."""

    wait_status: int
    oom_killed: bool = False
    max_rss_kb: int = 0

    @property
    def signal_name(self) -> str:
        """`SIGKILL`, or "" when it was no signal."""
        if not os.WIFSIGNALED(self.wait_status):
            return ""
        number = os.WTERMSIG(self.wait_status)
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"signal {number}"

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None when a signal ended it."""
        return os.WEXITSTATUS(self.wait_status) if os.WIFEXITED(self.wait_status) else None


def is_from_outside(child: Child, ending: ProcessEnd) -> bool:
    """Whether somebody else killed it, as far as can be known: a fault of its own ends in another way."""
    return ending.signal_name == "SIGKILL" and not ending.oom_killed and child.why is None


def reason_of(child: Child, ending: ProcessEnd) -> Reason:
    """Why it died: our own kill first, then its exit code, then the kernel's evidence."""
    if child.state is ChildState.KILLED and child.why is not None and ending.signal_name == "SIGKILL":
        return child.why
    if _has_left_as_told(child, ending):
        return child.why if child.state is ChildState.DRAINING and child.why in RECYCLED else Reason.DRAINED
    if ending.exit_code == EXIT_LOST:
        return Reason.LOST
    if ending.signal_name == "SIGKILL" and ending.oom_killed:
        return Reason.OOM
    if child.ready_at is None:
        return Reason.BOOT
    return Reason.SIGNAL if ending.signal_name else Reason.CRASH


def _has_left_as_told(child: Child, ending: ProcessEnd) -> bool:
    # Our TERM ends one that has no handler for it yet, or whose task took it away.
    if child.state is ChildState.DRAINING and ending.signal_name == "SIGTERM":
        return True
    return ending.exit_code == EXIT_DRAINED and child.state in (ChildState.DRAINING, ChildState.KILLED)
