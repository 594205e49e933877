"""Why a child was told to leave or was killed, and why it died: one table with every fact about each reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota.protocol.entry import CrashKind

TIME_LIMIT: Final = "time_limit_seconds"
UNWANTED: Final = "its generation or its pool is not wanted any more"
ONE_TOO_MANY: Final = "it was one too many"
AS_TOLD: Final = " as it was told"


class Reason(StrEnum):
    """The values are what the log says; `facts` has the rest."""

    CRASH = "crash"
    SIGNAL = "signal"
    OOM = "oom"
    HUNG = "hung"
    TIMEOUT = "timeout"
    MAX_TASKS = "max_tasks"
    MAX_RSS = "max_rss"
    RELOAD = "reload"
    BOOT = "boot"
    SURPLUS = "surplus"
    STOP = "stop"
    LOST = "lost"
    DRAINED = "drained"

    @property
    def facts(self) -> "Facts":
        """What follows from this reason."""
        return _FACTS[self]

    @property
    def label(self) -> str:
        """The label of the counter of restarts."""
        return self.facts.counted_as or self.value


@dataclass(frozen=True, slots=True)
class Facts:
    """What follows from a reason.

    `words`: what is said after "killed by SIGKILL" or "left with exit code 1"; `{value}` is the value of the limit.
    `limit`: the limit that was hit, by its name in the configuration. `is_expected`: the child was told to leave, for
    nothing that it did wrong. `is_explained`: the master ended it or knows why it ended. `blames_task`: the task that
    ran is charged with the death. `asks_for_stack`: the child is asked for its stack before it is killed for this.
    `mark`: what the task that ran keeps of the death. `counted_as`: the label of the counter, if it is another one.
    """

    words: str = ""
    limit: str = ""
    is_expected: bool = False
    is_explained: bool = True
    blames_task: bool = True
    asks_for_stack: bool = False
    mark: CrashKind = CrashKind.CRASH
    counted_as: str = ""


def _expected(words: str, *, limit: str = "", counted_as: str = "") -> Facts:
    return Facts(words, limit, is_expected=True, blames_task=False, counted_as=counted_as)


_FACTS: Final[Mapping[Reason, Facts]] = {
    Reason.CRASH: Facts(is_explained=False),
    Reason.SIGNAL: Facts(is_explained=False, mark=CrashKind.SIGNAL),
    Reason.OOM: Facts(": the kernel ran out of memory for this cgroup", mark=CrashKind.OOM),
    Reason.HUNG: Facts(
        ", by its master: it gave no sign of life for {value:g} s",
        "beat_seconds",
        asks_for_stack=True,
        mark=CrashKind.HUNG,
    ),
    Reason.TIMEOUT: Facts(
        ", by its master: the task was over its time limit", TIME_LIMIT, asks_for_stack=True, mark=CrashKind.TIMEOUT
    ),
    Reason.BOOT: Facts(" before it was ready", "boot_seconds", asks_for_stack=True),
    Reason.LOST: Facts(": its lease was lost", blames_task=False, counted_as=Reason.CRASH),
    Reason.MAX_TASKS: _expected(": recycled between tasks, as it had run as many as it may", limit="max_tasks"),
    Reason.MAX_RSS: _expected(": recycled between tasks, as it had grown by as much as it may", limit="max_rss_mb"),
    Reason.RELOAD: _expected(f", by its master: {UNWANTED}"),
    Reason.SURPLUS: _expected(f", by its master: {ONE_TOO_MANY}", counted_as=Reason.RELOAD),
    Reason.STOP: _expected(", by its master: it was to leave and did not in time", counted_as=Reason.RELOAD),
    Reason.DRAINED: _expected(AS_TOLD, counted_as=Reason.RELOAD),
}
RECYCLED: Final = frozenset({Reason.MAX_TASKS, Reason.MAX_RSS})  # a worker had asked to be replaced
