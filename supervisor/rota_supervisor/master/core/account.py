"""The account of a death: all that is known of it, for its event in the log and for the task that ran."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rota.child.life import EXIT_DRAINED, EXIT_OTHER_VERSION, EXIT_OVERWRITTEN, NANOSECONDS
from rota.child.slot_task import TaskInSlot
from rota_supervisor.config.model import Limits
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child
from rota_supervisor.master.core.deadlines import patience
from rota_supervisor.master.core.ending import ProcessEnd, is_from_outside, reason_of
from rota_supervisor.master.core.reasons import AS_TOLD, ONE_TOO_MANY, TIME_LIMIT, UNWANTED, Reason
from rota_supervisor.master.core.stack_text import last_words, of_fatal_error, shortened

STACK_CHARACTERS_OF_A_LINE: Final = 1500  # of 4,096 bytes; the names take up to 1,000, the rest 600
STACK_CHARACTERS_OF_AN_EPITAPH: Final = 4000
_FATAL_SIGNALS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})

_AT_ONCE: Final = ", by its master: the fleet leaves at once"
_WITHOUT_REDIS: Final = ", by its master: the fleet leaves, Redis is away, and it had nothing in hand"
_LEAVES: Final = ", by its master: the fleet leaves, and it was still starting"
_STOPPED: Final = ", by its master: it had been stopped, as by SIGSTOP, for {value:g} s"
_BOOT_DEADLINE: Final = ", by its master: it was not ready within {value:g} s"
_OTHER_VERSION: Final = ": another version of the package was installed under this master: restart it"
_SOMEBODY: Final = ": somebody else sent it, as the kernel counted no kill for want of memory"
_NATIVE: Final = ": native code failed"
_ABORTED: Final = ": it gave itself up, as native code does by abort()"
_NO_ANSWER: Final = "it did not answer: it blocks signals, or stands in the kernel"
_BY_ITSELF: Final = ": the process was ended from inside, as by os._exit"
_OVERWRITTEN: Final = ": a task, or what one had started, wrote over the memory in which it shows what it does"
_BY_A_SIGNAL: Final = ": not told by its master, perhaps by a signal from somebody else"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What held when a child died: its limits, when it was (seconds of the master's clock), the task that ran, what its
    stack file said, whether the fleet was told to leave, and at once; and whether it had nothing in hand and was given
    no more time to leave, as Redis is away."""

    limits: Limits
    died_at: float = 0.0
    task: TaskInSlot | None = None
    stack: str = ""
    leaving: bool = False
    at_once: bool = False
    without_redis: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """A child's end, judged."""

    child: Child
    reason: Reason
    ending: ProcessEnd
    circumstances: Circumstances

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody else killed it, as far as can be known."""
        return is_from_outside(self.child, self.ending)

    @property
    def is_task_to_blame(self) -> bool:
        """Whether the task that ran is charged with it."""
        return self.reason.facts.blames_task

    @property
    def has_left(self) -> bool:
        """Whether it left as it was told, between two tasks. What it still held came with an answer that it never
        read."""
        left = self.reason.facts.is_expected and self.ending.exit_code == EXIT_DRAINED
        return left and self.circumstances.task is None

    @property
    def was_stopped(self) -> bool:
        """Whether it stood still when it was killed."""
        return self.child.stopped_at is not None

    @property
    def is_late(self) -> bool:
        """Whether it was told to leave, had time to, and had to be killed."""
        return self.reason is Reason.STOP and not self._was_not_waited_for

    @property
    def _was_not_waited_for(self) -> bool:
        return self.circumstances.at_once or self.circumstances.without_redis

    @property
    def limit(self) -> tuple[str, float] | None:
        """The limit that it hit, by its name in the configuration, and that limit's value."""
        name, task = self._limit_name, self.circumstances.task
        if not name:
            return None
        if name == TIME_LIMIT:
            return None if task is None else (name, round((task.deadline_ns - task.started_ns) / NANOSECONDS, 3))
        value = getattr(self.circumstances.limits, name)
        return name, patience(self.child.role, value) if self.reason is Reason.HUNG and self.was_stopped else value

    @property
    def _limit_name(self) -> str:
        if self.reason is Reason.STOP:
            if self._was_not_waited_for:
                return ""
            return "drain_seconds" if self.circumstances.leaving else "beat_seconds"
        if self.reason is Reason.BOOT and self.child.why is not Reason.BOOT:
            return ""
        return self.reason.facts.limit

    @property
    def elapsed_seconds(self) -> float:
        """How long the task had run; 0 when there was none."""
        task = self.circumstances.task
        return 0.0 if task is None else round(max(0.0, self.circumstances.died_at - task.started_ns / NANOSECONDS), 3)

    @property
    def words(self) -> str:
        """The death in words."""
        code, name = self.ending.exit_code, self.ending.signal_name
        value = 0.0 if self.limit is None else self.limit[1]
        said = "" if name or self.child.ready_at is not None else last_words(self.circumstances.stack)
        ended = f"killed by {name}" if name else f"left with exit code {code}"
        return ended + self._why.format(value=value) + (f": {said}" if said else "")

    @property
    def _why(self) -> str:
        code, name = self.ending.exit_code, self.ending.signal_name
        special = (
            (Reason.BOOT, code == EXIT_OTHER_VERSION, _OTHER_VERSION),
            (Reason.BOOT, self.child.why is Reason.BOOT, _BOOT_DEADLINE),
            (Reason.HUNG, self.was_stopped, _STOPPED),
            (Reason.STOP, self.circumstances.at_once, _AT_ONCE),
            (Reason.STOP, self.circumstances.without_redis, _WITHOUT_REDIS),
            (Reason.DRAINED, self.circumstances.leaving, AS_TOLD),  # the whole fleet was
            (Reason.SURPLUS, self.circumstances.leaving, _LEAVES),
            (Reason.RELOAD, self.circumstances.leaving, _LEAVES),
            (Reason.DRAINED, self.child.why is Reason.RELOAD, f"{AS_TOLD}: {UNWANTED}"),
            (Reason.DRAINED, self.child.why is Reason.SURPLUS, f"{AS_TOLD}: {ONE_TOO_MANY}"),
            (Reason.CRASH, code == EXIT_OVERWRITTEN, _OVERWRITTEN),
            (Reason.CRASH, self.circumstances.task is not None, _BY_ITSELF),
            (Reason.CRASH, code == EXIT_DRAINED, _BY_A_SIGNAL),
            (Reason.SIGNAL, name == "SIGKILL", _SOMEBODY),
            (Reason.SIGNAL, name == "SIGABRT", _ABORTED),
            (Reason.SIGNAL, name in _FATAL_SIGNALS, _NATIVE),
        )
        return next((why for reason, holds, why in special if holds and reason is self.reason), self.reason.facts.words)

    def stack(self, most: int) -> str:
        """Where it stood when it failed or was killed, in so many characters; "" when that is not known."""
        if self.ending.signal_name in _FATAL_SIGNALS:
            return shortened(of_fatal_error(self.circumstances.stack), most)
        was_asked = self.child.why is self.reason and self.child.dumped_at >= self.child.asked_at
        return shortened(self.circumstances.stack, most) or _NO_ANSWER if was_asked else ""


def judge(child: Child, ending: ProcessEnd, circumstances: Circumstances) -> Death:
    """A death with its reason, from the state the child was in when it ended."""
    return Death(child, reason_of(child, ending), ending, circumstances)


def fields_of(death: Death) -> dict[str, Any]:
    """The fields of the event; what does not apply is left out."""
    child, task = death.child, death.circumstances.task
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
        "elapsed_seconds": None if death.circumstances.task is None else death.elapsed_seconds,
        "max_rss_mb_with_shared": peak_mb or None,
    }


def _without_none(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}
