"""The account of a death: all that is known of it, for its event in the log and for the task that ran. Pure."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rota.child.fence import NANOSECONDS
from rota.child.life import EXIT_DRAINED, EXIT_OTHER_VERSION
from rota.child.slot_task import CurrentTask
from rota.protocol.entry import Setback
from rota_supervisor.config.model import Limits
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, Reason
from rota_supervisor.master.deaths.reap import Ending, is_from_outside, is_task_to_blame, reason_of
from rota_supervisor.master.deaths.stack_text import last_words, of_fatal_error, shortened
from rota_supervisor.master.planning.deadlines import STOPPED_POLLER_SECONDS

STACK_CHARACTERS_OF_A_LINE: Final = 1500  # of 4,096 bytes; the names take up to 1,000, the rest 600
STACK_CHARACTERS_OF_AN_EPITAPH: Final = 4000
_FATAL_SIGNALS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})

_TIME_LIMIT: Final = "time_limit_seconds"
_LIMITS: Final = {
    Reason.TIMEOUT: _TIME_LIMIT,
    Reason.HUNG: "beat_seconds",
    Reason.BOOT: "boot_seconds",
    Reason.MAX_TASKS: "max_tasks",
    Reason.MAX_RSS: "max_rss_mb",
}
_TOLD: Final = " as it was told"
_UNWANTED: Final = "its generation or its pool is not wanted any more"
_SURPLUS: Final = "it was one too many"
_WHY: Final = {
    Reason.CRASH: "",
    Reason.SIGNAL: "",
    Reason.OOM: ": the kernel ran out of memory for this cgroup",
    Reason.HUNG: ", by its master: it gave no sign of life for {value:g} s",
    Reason.TIMEOUT: ", by its master: the task was over its time limit",
    Reason.MAX_TASKS: ": recycled between tasks, as it had run as many as it may",
    Reason.MAX_RSS: ": recycled between tasks, as it had grown by as much as it may",
    Reason.RELOAD: f", by its master: {_UNWANTED}",
    Reason.SURPLUS: f", by its master: {_SURPLUS}",
    Reason.STOP: ", by its master: it was to leave and did not in time",
    Reason.BOOT: " before it was ready",
    Reason.LOST: ": its lease was lost",
    Reason.DRAINED: _TOLD,
}
_SETBACKS: Final = {
    Reason.SIGNAL: Setback.SIGNAL,
    Reason.OOM: Setback.OOM,
    Reason.HUNG: Setback.HUNG,
    Reason.TIMEOUT: Setback.TIMEOUT,
}
_AT_ONCE: Final = ", by its master: the fleet leaves at once"
_LEAVES: Final = ", by its master: the fleet leaves, and it was still starting"
_STOPPED: Final = ", by its master: it had been stopped, as by SIGSTOP, for {value:g} s"
_BOOT_DEADLINE: Final = ", by its master: it was not ready within {value:g} s"
_OTHER_VERSION: Final = ": another version of the package was installed under this master: restart it"
_SOMEBODY: Final = ": somebody else sent it, as the kernel counted no kill for want of memory"
_NATIVE: Final = ": native code failed"
_ABORTED: Final = ": it gave itself up, as native code does by abort()"
_NO_ANSWER: Final = "it did not answer: it blocks signals, or stands in the kernel"
_BY_ITSELF: Final = ": the process was ended from inside, as by os._exit"
_BY_A_SIGNAL: Final = ": not told by its master, perhaps by a signal from somebody else"


@dataclass(frozen=True, slots=True)
class Scene:
    """What was found beside a dead child: the task that ran, what its stack file said and whether it had been asked
    for it, its limits, and whether the fleet was told to leave, and at once."""

    limits: Limits
    died_ns: int = 0
    task: CurrentTask | None = None
    stack: str = ""
    leaving: bool = False
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """A child's end, judged."""

    child: Child
    reason: Reason
    ending: Ending
    scene: Scene

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody else killed it, as far as can be known."""
        return is_from_outside(self.child, self.ending)

    @property
    def is_task_to_blame(self) -> bool:
        """Whether the task that ran is charged with it."""
        return is_task_to_blame(self.reason)

    @property
    def was_stopped(self) -> bool:
        """Whether it stood still when it was killed."""
        return self.child.stopped_at is not None

    @property
    def is_late(self) -> bool:
        """Whether it was told to leave, had time to, and had to be killed."""
        return self.reason is Reason.STOP and not self.scene.at_once

    @property
    def limit(self) -> tuple[str, float] | None:
        """The limit that it hit, by its name in the configuration, and that limit's value."""
        name, task = self._limit_name, self.scene.task
        if not name:
            return None
        if name == _TIME_LIMIT:
            return None if task is None else (name, round((task.deadline_ns - task.started_ns) / NANOSECONDS, 3))
        value = getattr(self.scene.limits, name)
        if self.reason is Reason.HUNG and self.was_stopped and self.child.role is Role.POLLER:
            value = min(value, STOPPED_POLLER_SECONDS)
        return name, value

    @property
    def _limit_name(self) -> str:
        if self.reason is Reason.STOP:
            return "" if self.scene.at_once else "drain_seconds" if self.scene.leaving else "beat_seconds"
        if self.reason is Reason.BOOT and self.child.why is not Reason.BOOT:
            return ""
        return _LIMITS.get(self.reason, "")

    @property
    def elapsed_seconds(self) -> float:
        """How long the task had run; 0 when there was none."""
        task = self.scene.task
        return 0.0 if task is None else round(max(0, self.scene.died_ns - task.started_ns) / NANOSECONDS, 3)

    @property
    def words(self) -> str:
        """The death in words."""
        code, name = self.ending.exit_code, self.ending.signal_name
        value = 0.0 if self.limit is None else self.limit[1]
        said = "" if name or self.child.ready_at is not None else last_words(self.scene.stack)
        ended = f"killed by {name}" if name else f"left with exit code {code}"
        return ended + self._why.format(value=value) + (f": {said}" if said else "")

    @property
    def _why(self) -> str:
        code, name = self.ending.exit_code, self.ending.signal_name
        special = (
            (Reason.BOOT, code == EXIT_OTHER_VERSION, _OTHER_VERSION),
            (Reason.BOOT, self.child.why is Reason.BOOT, _BOOT_DEADLINE),
            (Reason.HUNG, self.was_stopped, _STOPPED),
            (Reason.STOP, self.scene.at_once, _AT_ONCE),
            (Reason.DRAINED, self.scene.leaving, _TOLD),  # the whole fleet was
            (Reason.SURPLUS, self.scene.leaving, _LEAVES),
            (Reason.RELOAD, self.scene.leaving, _LEAVES),
            (Reason.DRAINED, self.child.why is Reason.RELOAD, f"{_TOLD}: {_UNWANTED}"),
            (Reason.DRAINED, self.child.why is Reason.SURPLUS, f"{_TOLD}: {_SURPLUS}"),
            (Reason.CRASH, self.scene.task is not None, _BY_ITSELF),
            (Reason.CRASH, code == EXIT_DRAINED, _BY_A_SIGNAL),
            (Reason.SIGNAL, name == "SIGKILL", _SOMEBODY),
            (Reason.SIGNAL, name == "SIGABRT", _ABORTED),
            (Reason.SIGNAL, name in _FATAL_SIGNALS, _NATIVE),
        )
        return next((why for reason, holds, why in special if holds and reason is self.reason), _WHY[self.reason])

    def stack(self, most: int) -> str:
        """Where it stood when it failed or was killed, in so many characters; "" when that is not known."""
        if self.ending.signal_name in _FATAL_SIGNALS:
            return shortened(of_fatal_error(self.scene.stack), most)
        was_asked = self.child.why is self.reason and self.child.dumped_at >= self.child.asked_at
        return shortened(self.scene.stack, most) or _NO_ANSWER if was_asked else ""


def judge(child: Child, ending: Ending, scene: Scene) -> Death:
    """A death with its reason, from the state the child was in when it ended."""
    return Death(child, reason_of(child, ending), ending, scene)


def fields_of(death: Death) -> dict[str, Any]:
    """The fields of the event; what does not apply is left out."""
    child, task = death.child, death.scene.task
    said: dict[str, Any] = {
        "child": child.role.value,
        "slot": child.slot,
        "child_pid": child.pid,
        "generation": child.generation,
        "pool": child.pool if child.role is Role.WORKER else None,
        "reason": death.reason.value,
        "words": death.words,
        "idle": task is None if child.role is Role.WORKER and child.ready_at is not None else None,
    }
    if task is not None:
        said |= {"task": task.name, "task_id": task.id, "queue": task.queue}
    return _without_none(said | _facts(death) | {"stack": death.stack(STACK_CHARACTERS_OF_A_LINE) or None})


def setback_of(death: Death) -> Setback:
    """The mark that the task keeps of it."""
    return _SETBACKS.get(death.reason, Setback.CRASH)


def epitaph_of(death: Death, at: datetime) -> bytes:
    """What stays with the task that ran, while it lives and if this death is its last: a JSON object as
    `rota.protocol.epitaph` has it."""
    said: dict[str, Any] = {
        "reason": "crashed",
        "error": death.words,
        "cause": death.reason.value,
        **_facts(death),
        "owner": death.child.owner,
        "pid": death.child.pid,
        "stack": death.stack(STACK_CHARACTERS_OF_AN_EPITAPH) or None,
        "at": at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }
    return json.dumps(_without_none(said), separators=(",", ":")).encode()


def _facts(death: Death) -> dict[str, Any]:
    ending, limit = death.ending, death.limit
    peak_mb = round(ending.max_rss_kb / 1024, 1)
    return {
        "signal": ending.signal_name or None,
        "exit_code": ending.exit_code,
        "limit": limit[0] if limit else None,
        "limit_value": limit[1] if limit else None,
        "stopped": True if death.was_stopped else None,
        "oom_killed": True if ending.oom_killed else None,
        "elapsed_seconds": None if death.scene.task is None else death.elapsed_seconds,
        "max_rss_mb_with_shared": peak_mb or None,
    }


def _without_none(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}
