"""Judge a death: why a child died, what its task is told, and whether the task is to blame. Pure."""

import json
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rota.child.life import EXIT_DRAINED, EXIT_LOST, EXIT_OTHER_VERSION, EXIT_RECYCLED
from rota.child.slots import CurrentTask
from rota_supervisor.master.children import Child, Reason, State

# Deaths that we brought about for reasons that lie outside of the task.
_OURS: Final = frozenset({Reason.STOP, Reason.SURPLUS, Reason.RELOAD, Reason.DRAINED, Reason.LOST})


_LATE_TO_LEAVE: Final = " by its master: it was to leave and did not in time"
_EXPLANATIONS: Final = {
    Reason.CRASH: "",
    Reason.SIGNAL: "",
    Reason.OOM: ": the kernel ran out of memory for this cgroup",
    Reason.HUNG: " by its master: it said nothing for too long, or was stopped",
    Reason.TIMEOUT: " by its master: the task was over its time limit",
    Reason.MAX_TASKS: ": recycled between tasks",
    Reason.MAX_RSS: ": recycled between tasks",
    Reason.RELOAD: _LATE_TO_LEAVE,
    Reason.SURPLUS: _LATE_TO_LEAVE,
    Reason.STOP: _LATE_TO_LEAVE,
    Reason.BOOT: " before it was ready",
    Reason.LOST: ": its lease was lost",
    Reason.DRAINED: " as it was told",
}
_OTHER_VERSION: Final = ": another version of the package was installed under this master: restart it"
# What our own exit codes say, whatever the state.
_BY_EXIT_CODE: Final = {EXIT_LOST: Reason.LOST, EXIT_RECYCLED: Reason.MAX_TASKS}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. `oom_kills`: how many the cgroup counted since the last death; `max_rss_kb` includes
    the pages it shared with its zygote."""

    wait_status: int
    oom_kills: int = 0
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
            return f"signal {number}"

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None when a signal ended it."""
        return os.WEXITSTATUS(self.wait_status) if os.WIFEXITED(self.wait_status) else None


@dataclass(frozen=True, slots=True)
class Death:
    """A child's end, judged."""

    child: Child
    reason: Reason
    ending: Ending

    @property
    def words(self) -> str:
        """The death in words, for the log and the epitaph."""
        code, name = self.ending.exit_code, self.ending.signal_name
        is_other_version = code == EXIT_OTHER_VERSION and self.child.ready_at is None
        why = _OTHER_VERSION if is_other_version else _EXPLANATIONS[self.reason]
        return (f"killed by {name}" if name else f"left with exit code {code}") + why

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody else killed it, as far as can be known: a fault of its own ends in another way."""
        ours = self.child.why is not None
        return self.ending.signal_name == "SIGKILL" and not self.ending.oom_kills and not ours

    @property
    def is_task_to_blame(self) -> bool:
        """Whether the task that ran is charged with it."""
        return self.reason not in _OURS


def judge(child: Child, ending: Ending) -> Death:
    """A death with its reason, from the state the child was in when it ended."""
    return Death(child, reason_of(child, ending), ending)


def reason_of(child: Child, ending: Ending) -> Reason:
    """Why it died: our own kill first, then its exit code, then the kernel's evidence."""
    if child.state is State.KILLED and child.why is not None and ending.signal_name == "SIGKILL":
        return child.why
    if ending.exit_code == EXIT_DRAINED and child.state in (State.DRAINING, State.KILLED):
        return Reason.DRAINED
    if ending.exit_code in _BY_EXIT_CODE:
        return _BY_EXIT_CODE[ending.exit_code]
    if child.ready_at is None:
        return Reason.BOOT
    if ending.signal_name == "SIGKILL" and ending.oom_kills:
        return Reason.OOM
    return Reason.SIGNAL if ending.signal_name else Reason.CRASH


def epitaph_of(death: Death, task: CurrentTask, died_ns: int, at: datetime) -> bytes:
    """The epitaph of the task that ran, if this death is its last: a JSON object as `rota.protocol.epitaph` has it."""
    child, ending = death.child, death.ending
    said: dict[str, object] = {
        "reason": "crashed",
        "error": death.words,
        "cause": death.reason.value,
        "signal": ending.signal_name or None,
        "exit_code": ending.exit_code,
        "elapsed_seconds": round(max(0, died_ns - task.started_ns) / 1e9, 3),
        "max_rss_mb_with_shared": round(ending.max_rss_kb / 1024, 1),
        "owner": child.owner,
        "pid": child.pid,
        "at": at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }
    return json.dumps({key: value for key, value in said.items() if value is not None}, separators=(",", ":")).encode()
