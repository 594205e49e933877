"""The reasons why a child is ordered to leave, is killed or dies, in one table with the consequences of each reason."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from rota.protocol.entry import CrashKind

TIME_LIMIT: Final = "time_limit_seconds"
KILL_AFTER: Final = "kill_after"
UNWANTED: Final = "the generation or the pool of the process is no longer in use"
ONE_TOO_MANY: Final = "there were more processes than needed"
AS_REQUESTED: Final = " as requested"


@dataclass(frozen=True, slots=True)
class Facts:
    """The text for a reason, and the consequences of a death for that reason."""

    # The text after "killed by SIGKILL" or "exited with code 1"; `{value}` is the value of the limit.
    text: str = ""
    limit: str = ""  # the name of the limit that was reached, as in the configuration
    is_expected: bool = False  # whether the child had to leave although it did nothing wrong
    is_explained: bool = True  # whether the master ended the child, or knows why it ended
    blames_task: bool = True  # whether the death counts against the running task
    dumps_stack: bool = False  # whether the child's stack is requested before it is killed
    mark: CrashKind = CrashKind.CRASH  # the kind of death that is stored with the running task
    counted_as: str = ""  # the restart counter's label for the reason, if it is not the reason's value


def _hit(limit: str, text: str, mark: CrashKind = CrashKind.CRASH) -> Facts:
    return Facts(text, limit, dumps_stack=True, mark=mark)


def _expected(text: str, *, limit: str = "", counted_as: str = "") -> Facts:
    return Facts(text, limit, is_expected=True, blames_task=False, counted_as=counted_as)


class Reason(StrEnum):
    """The reason why a process died. The value of a reason is the word that the log uses. The attribute `facts`
    describes how the master treats such a death."""

    facts: Facts

    def __new__(cls, value: str, facts: Facts) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.facts = facts
        return member

    CRASH = "crash", Facts(is_explained=False)
    SIGNAL = "signal", Facts(is_explained=False, mark=CrashKind.SIGNAL)
    OOM = "oom", Facts(": the kernel ran out of memory for this cgroup", mark=CrashKind.OOM)
    HUNG = (
        "hung",
        _hit("beat_seconds", ", by its master: the process sent no heartbeat for {value:g} s", CrashKind.HUNG),
    )
    TIMEOUT = "timeout", _hit(TIME_LIMIT, ", by its master: the task exceeded its time limit", CrashKind.TIMEOUT)
    CANCELLED = (
        "cancelled",
        Facts(
            ", by its master: the task was cancelled, but did not end in time",
            KILL_AFTER,
            is_expected=True,
            blames_task=False,
            dumps_stack=True,
        ),
    )
    BOOT = "boot", _hit("boot_seconds", " before it was ready")
    LOST = "lost", Facts(": the worker had lost its lease", blames_task=False, counted_as="crash")
    MAX_TASKS = (
        "max_tasks",
        _expected(
            ": recycled between tasks, because the worker had run its maximum number of tasks", limit="max_tasks"
        ),
    )
    MAX_RSS = (
        "max_rss",
        _expected(": recycled between tasks, because the worker's memory had grown by the maximum", limit="max_rss_mb"),
    )
    RELOAD = "reload", _expected(f", by its master: {UNWANTED}")
    SURPLUS = "surplus", _expected(f", by its master: {ONE_TOO_MANY}", counted_as="reload")
    STOP = "stop", _expected(", by its master: the process did not exit in time", counted_as="reload")
    DRAINED = "drained", _expected(AS_REQUESTED, counted_as="reload")

    @property
    def label(self) -> str:
        """The label under which the restart counter counts this reason."""
        return self.facts.counted_as or self.value


RECYCLED: Final = frozenset({Reason.MAX_TASKS, Reason.MAX_RSS})  # the reasons for which a worker asks to be replaced
