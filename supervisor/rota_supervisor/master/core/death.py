"""The post-mortem of a child: why the child died, the fields of the log event, and the death record of its task."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import rota
import rota_supervisor
from rota.child import child_process
from rota.child.slot_record import TaskInSlot
from rota.durations import NANOSECONDS
from rota.protocol.entry import parse_entry
from rota.protocol.outcome import CRASHED
from rota_supervisor.config.model import Limits
from rota_supervisor.layout import EXIT_REASON_MARK, Role
from rota_supervisor.master.core.children import Child, ChildState, SentCancel
from rota_supervisor.master.core.master_events import Died, ProcessEnd
from rota_supervisor.master.core.reasons import (
    AS_REQUESTED,
    KILL_AFTER,
    ONE_TOO_MANY,
    RECYCLED,
    TIME_LIMIT,
    UNWANTED,
    Reason,
)
from rota_supervisor.master.core.targets import Stage, Stop

STACK_CHARACTERS_OF_A_LINE: Final = 1500  # a line has 4,096 bytes: names take up to 1,000 and other fields 600
STACK_CHARACTERS_OF_A_RECORD: Final = 4000
_FATAL_SIGNALS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})

_AT_ONCE: Final = ", by its master: the fleet is stopping at once"
_WITHOUT_REDIS: Final = ", by its master: the fleet is stopping, Redis is unreachable, and the process held no tasks"
_LEAVES: Final = ", by its master: the fleet is stopping, and the process was still starting"
_STOPPED: Final = ", by its master: the process had been stopped, for example by SIGSTOP, for {value:g} s"
_BOOT_DEADLINE: Final = ", by its master: the process was not ready within {value:g} s"
_OTHER_VERSION: Final = (
    ": another version of the package was installed while this master was running: restart the fleet"
)
_FROM_OUTSIDE: Final = ": not sent by its master, and the kernel counted no out-of-memory kill"
_NATIVE: Final = ": native code failed"
_ABORTED: Final = ": the process aborted itself, as native code does with abort()"
_NO_REPLY: Final = "the process did not reply: it blocks signals, or hangs in the kernel"
_BY_ITSELF: Final = ": the process ended itself, for example with os._exit"
_OVERWRITTEN: Final = ": a task, or a process that the task had started, overwrote the memory of the worker's slot"
_BY_A_SIGNAL: Final = ": not requested by its master, perhaps by a signal from outside"


def reason_of(child: Child, ending: ProcessEnd) -> Reason:
    """Return why a child died. The master's own kill takes precedence, then the exit code, then the kernel's evidence.

    Call this before the child's record is changed to EXITED, because the reason depends on the state in which the child
    died.
    """
    was_killed = ending.signal_name == "SIGKILL"
    if child.state is ChildState.KILLED and child.why is not None and was_killed:
        return child.why
    if _has_left_as_requested(child, ending):
        return child.why if child.state is ChildState.DRAINING and child.why in RECYCLED else Reason.DRAINED
    if ending.exit_code == child_process.EXIT_LOST:
        return Reason.LOST
    if was_killed and ending.oom_killed:
        return Reason.OOM
    if child.ready_at is None:
        return Reason.BOOT
    return Reason.SIGNAL if ending.signal_name else Reason.CRASH


def _has_left_as_requested(child: Child, ending: ProcessEnd) -> bool:
    # A SIGTERM from the master ends a child that has not installed its handler yet, or whose task removed the handler.
    if child.state is ChildState.DRAINING and ending.signal_name == "SIGTERM":
        return True
    return ending.exit_code == child_process.EXIT_DRAINED and child.state in (ChildState.DRAINING, ChildState.KILLED)


def _is_first(task: TaskInSlot) -> bool:
    try:
        entry = parse_entry(task.entry)
    except (ValueError, KeyError):  # The task has overwritten the entry in the slot.
        return True
    return not entry.failures and not entry.crashes


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a child and its circumstances."""

    child: Child
    reason: Reason
    event: Died
    limits: Limits  # the limits of the child's generation
    died_at: float  # the time of the death, in seconds on the master's clock
    stop: Stop  # whether the fleet was stopping, and which stage the stop had reached
    has_work: bool  # whether the child held tasks or outcomes when its slot was last read

    @property
    def is_from_outside(self) -> bool:
        """Whether the child was killed with SIGKILL, but neither by the master nor by the kernel for lack of memory."""
        ending = self.event.ending
        return ending.signal_name == "SIGKILL" and not ending.oom_killed and self.child.why is None

    @property
    def has_left(self) -> bool:
        """Whether the child exited on request while it ran no task. In Redis, such a child can still hold a task only
        if it exited before it read the reply to its last claim."""
        event = self.event
        return (
            self.reason.facts.is_expected and event.ending.exit_code == child_process.EXIT_DRAINED and not event.tasks
        )

    @property
    def blamed_tasks(self) -> tuple[TaskInSlot, ...]:
        """The running tasks that may have caused the death, which are usually all of them. If the child was killed
        because tasks exceeded their hard limit, or did not end after a cancellation, only those tasks are returned."""
        tasks = self.event.tasks
        child = self.child
        if child.concurrency > 1 and self.reason is Reason.TIMEOUT:
            return tuple(task for task in tasks if 0 < task.deadline_ns / NANOSECONDS < self.died_at)
        if child.concurrency > 1 and self.reason is Reason.CANCELLED:
            return tuple(task for task in tasks if self._sent_cancel(task).kill_at < self.died_at)
        return tasks

    @property
    def first_attempts(self) -> int:
        """The number of blamed tasks for which this was the first attempt, or 0 if tasks are never blamed for such a
        death."""
        return sum(map(_is_first, self.blamed_tasks)) if self.reason.facts.blames_task else 0

    @property
    def task(self) -> TaskInSlot | None:
        """The task that caused the death, or None if there was none or if several tasks may have caused it."""
        return self.blamed_tasks[0] if len(self.blamed_tasks) == 1 else None

    def _sent_cancel(self, task: TaskInSlot) -> SentCancel:
        sent = self.child.cancels.get(task.task_index)
        return sent if sent is not None and sent.number == task.number else SentCancel(task.number)

    @property
    def was_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP had suspended the child when it was killed."""
        return self.child.stopped_at is not None

    @property
    def is_late(self) -> bool:
        """Whether the child was killed because it did not leave in time, although it was ordered to leave and had time
        to do so."""
        return self.reason is Reason.STOP and not (self._is_at_once or self._is_without_redis)

    @property
    def _is_at_once(self) -> bool:
        return self.stop.stage is Stage.AT_ONCE

    @property
    def _is_without_redis(self) -> bool:
        """Whether the child had less time to leave, because Redis was unreachable and the child held neither tasks nor
        outcomes."""
        return self.stop.is_without_redis and not self.has_work

    def limit_of(self, task: TaskInSlot | None) -> tuple[str, float] | None:
        """Return the limit that the child exceeded, as its name in the configuration and its value, or None if it
        exceeded none.

        Each task has its own hard time limit, and its own time to end after a cancellation. For these two limits, the
        value is taken from `task`, and the result is None if `task` is None.
        """
        name = self.reason.facts.limit
        why = self.child.why
        if self.is_late:
            name = "drain_seconds" if self.stop.is_requested else "beat_seconds"
        if not name or (self.reason is Reason.BOOT and why is not Reason.BOOT):
            return None
        if name in (TIME_LIMIT, KILL_AFTER):
            return None if task is None else self._limit_of_task(name, task)
        value = getattr(self.limits, name)
        return name, self.child.stop_timeout(value) if self.reason is Reason.HUNG and self.was_stopped else value

    def _limit_of_task(self, name: str, task: TaskInSlot) -> tuple[str, float] | None:
        if name == TIME_LIMIT:
            return name, round((task.deadline_ns - task.started_ns) / NANOSECONDS, 3)
        kill_after = self._sent_cancel(task).kill_after
        return None if kill_after is None else (name, kill_after)

    @property
    def text(self) -> str:
        """A description of the death, for example `killed by SIGSEGV: native code failed`."""
        name = self.event.ending.signal_name
        limit = self.limit_of(self.task)
        value = 0.0 if limit is None else limit[1]
        ended = f"killed by {name}" if name else f"exited with code {self.event.ending.exit_code}"
        reason = "" if name or self.child.ready_at is not None else exit_reason_in(self.event.stack)
        return ended + self._why.format(value=value) + (f": {reason}" if reason else "")

    @property
    def _why(self) -> str:
        code = self.event.ending.exit_code
        name = self.event.ending.signal_name
        why = self.child.why
        special = (
            (Reason.BOOT, code == child_process.EXIT_OTHER_VERSION, _OTHER_VERSION),
            (Reason.BOOT, why is Reason.BOOT, _BOOT_DEADLINE),
            (Reason.HUNG, self.was_stopped, _STOPPED),
            (Reason.STOP, self._is_at_once, _AT_ONCE),
            (Reason.STOP, self._is_without_redis, _WITHOUT_REDIS),
            (Reason.DRAINED, self.stop.is_requested, AS_REQUESTED),  # a stop of the fleet takes precedence over `why`
            (Reason.SURPLUS, self.stop.is_requested, _LEAVES),
            (Reason.RELOAD, self.stop.is_requested, _LEAVES),
            (Reason.DRAINED, why is Reason.RELOAD, f"{AS_REQUESTED}: {UNWANTED}"),
            (Reason.DRAINED, why is Reason.SURPLUS, f"{AS_REQUESTED}: {ONE_TOO_MANY}"),
            (Reason.CRASH, code == child_process.EXIT_OVERWRITTEN, _OVERWRITTEN),
            (Reason.CRASH, bool(self.event.tasks), _BY_ITSELF),
            (Reason.CRASH, code == child_process.EXIT_DRAINED, _BY_A_SIGNAL),
            (Reason.SIGNAL, name == "SIGKILL", _FROM_OUTSIDE),
            (Reason.SIGNAL, name == "SIGABRT", _ABORTED),
            (Reason.SIGNAL, name in _FATAL_SIGNALS, _NATIVE),
        )
        usual = self.reason.facts.text
        return next((text for reason, holds, text in special if holds and reason is self.reason), usual)

    def stack(self, most: int) -> str:
        """Return the stack that the child had when it failed or was killed, in at most `most` characters, or "" if the
        stack is not known."""
        if self.event.ending.signal_name in _FATAL_SIGNALS:
            return shortened(of_fatal_error(self.event.stack), most)
        was_requested = self.child.why is self.reason and self.child.dumped_at >= self.child.requested_at
        return shortened(self.event.stack, most) or _NO_REPLY if was_requested else ""


def fields_of(death: Death) -> dict[str, Any]:
    """Return the fields of the log event for a death. Fields that do not apply are omitted."""
    child = death.child
    task = death.task
    ran = len(death.event.tasks)
    is_worker = child.role is Role.WORKER
    return _without_none(
        {
            "child": child.role.value,
            "slot": child.slot,
            "child_pid": child.pid,
            "generation": child.generation,
            "pool": child.pool if is_worker else None,
            "reason": death.reason.value,
            "words": death.text,
            "idle": ran == 0 if is_worker and child.ready_at is not None else None,
            "tasks": ran if ran > 1 else None,
            "task": task.name if task else None,
            "task_id": task.id if task else None,
            "queue": task.queue if task else None,
            **_facts(death, task),
            "stack": death.stack(STACK_CHARACTERS_OF_A_LINE) or None,
        }
    )


def death_record_of(death: Death, task: TaskInSlot | None, reason: str = CRASHED) -> bytes:
    """Return the death record to store with a task that was running, whether the task is tried again or is now dead.

    The record is a JSON object as described in `rota.protocol.outcome`. `task` is None if the slot could not be read.
    """
    values = {
        "reason": reason,
        "error": death.text,
        "cause": death.reason.value,
        **_facts(death, task),
        "owner": death.child.owner,
        "pid": death.child.pid,
        "stack": death.stack(STACK_CHARACTERS_OF_A_RECORD) or None,
        "at": datetime.fromtimestamp(death.event.wall, UTC).isoformat(timespec="milliseconds"),
    }
    return json.dumps(_without_none(values), separators=(",", ":")).encode()


def _facts(death: Death, task: TaskInSlot | None) -> dict[str, Any]:
    ending = death.event.ending
    limit, value = death.limit_of(task) or (None, None)
    return {
        "signal": ending.signal_name or None,
        "exit_code": ending.exit_code,
        "limit": limit,
        "limit_value": value,
        "stopped": death.was_stopped or None,
        "oom_killed": ending.oom_killed or None,
        "elapsed_seconds": round(max(0.0, death.died_at - task.started_ns / NANOSECONDS), 3) if task else None,
        "max_rss_mb_with_shared": round(ending.max_rss_kb / 1024, 1) or None,
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# Formatting the output of faulthandler for a log line and for a death record

_FATAL_ERROR: Final = "Fatal Python error:"
_THREAD: Final = re.compile(r"^((?P<current>Current thread|Thread) 0x[0-9a-f]+ .*|Stack )\(most recent call first\):$")
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_OWN: Final = tuple(str(Path(package.__file__ or "").parent) for package in (rota, rota_supervisor))
_IMPORTER: Final = "<frozen"  # the names of files in the interpreter's own import frames start with this
_BETWEEN: Final = " < "


class _Frame(NamedTuple):
    file: str
    text: str


def of_fatal_error(text: str) -> str:
    """Return the part of a text that begins at its last fatal error, or "" if the text has no fatal error."""
    at = text.rfind(_FATAL_ERROR)
    return text[at:] if at >= 0 else ""


def exit_reason_in(text: str) -> str:
    """Return the reason that a process gave in its stack file before it exited on its own, or "" if it gave none."""
    _, mark, values = text.rpartition(EXIT_REASON_MARK)
    return values.partition("\n")[0] if mark else ""


def shortened(text: str, most: int) -> str:
    """Return the stack of one thread as one line of at most `most` characters, with the innermost call first. Return ""
    if `text` has no stack.

    If a thread has a fatal error, its stack is returned, otherwise that of the main thread, which was started first.
    Rota's own frames at the outer end are omitted. The line states how many frames were cut and how many other threads
    there are.
    """
    threads = _in_order(text)
    if not threads:
        return ""
    more = f" (other threads: {len(threads) - 1})" if len(threads) > 1 else ""
    return _joined(_application_frames(threads[0]), most - len(more)) + more


def _in_order(text: str) -> list[list[_Frame]]:
    """Return the frames of each thread in the order in which the threads were started; faulthandler writes them in the
    reverse order. A thread with a fatal error comes before all others."""
    threads: list[list[_Frame]] = []
    current = -1
    for line in text.splitlines():
        if head := _THREAD.match(line):
            current = len(threads) if head["current"] != "Thread" else current
            threads.append([])
        elif threads and (frame := _FRAME.match(line)):
            threads[-1].append(_Frame(frame["file"], f"{frame['name']} ({frame['file']}:{frame['line']})"))
    failed = [threads.pop(current)] if _FATAL_ERROR in text and current >= 0 else []
    return [frames for frames in [*failed, *reversed(threads)] if frames]


def _application_frames(frames: list[_Frame]) -> list[_Frame]:
    frames = [frame for frame in frames if not frame.file.startswith(_IMPORTER)] or frames
    outermost = next((at for at in range(len(frames), 0, -1) if not frames[at - 1].file.startswith(_OWN)), 0)
    return frames[:outermost] or frames


def _joined(frames: list[_Frame], most: int) -> str:
    """Join the innermost frames, as many as fit into `most` characters. At least a part of the innermost frame is
    kept."""
    texts = [frame.text for frame in frames]
    for kept in range(len(texts), 0, -1):
        end = f"{_BETWEEN}... {len(texts) - kept} more" if kept < len(texts) else ""
        line = _BETWEEN.join(texts[:kept]) + end
        if len(line) <= most:
            return line
    return texts[0][: max(0, most - 3)] + "..."
