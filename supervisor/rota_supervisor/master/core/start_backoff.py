"""The back-off of one generation of one pool, as a value: when the next child may be started.

1. Deaths before READY feed it: each doubles the wait, up to a limit. Children started together that die
   together count once.
2. While it waits nothing starts; then one probe at a time, until one is READY, which ends it.
3. Children that die soon after READY, of their own making and with nothing done, are *relapses*. The first
   TOLERATED in a row restart at once; then each doubles the wait too, and a probe that is READY has to stay for
   as long before the next is started. Work done ends that, or a healthy minute.
4. Other early deaths restart at once, but not without bound: more than EARLY_DEATHS a minute count as deaths before
   READY. These are kills by somebody else, once a wave: fifty workers killed together three times are no reason to go
   slow. So are children that somebody else kills while they start, of a generation that has worked.
5. A worker that did something and then dies in a task feeds nothing: its tasks are limited by their own counters.

What people are shown follows from it: `condition`.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from rota.durations import doubled
from rota_supervisor.config.model import Restarts
from rota_supervisor.layout import Role
from rota_supervisor.notice import PoolState

GIVE_UP_AFTER: Final = 5  # failures in a row of a generation that never had a READY child
EARLY_DEATHS: Final = 100  # a minute; a fork takes 15 ms, so workers killed as they come are slowed after 2 s
TOLERATED: Final = 10  # relapses; three tasks in a row that crash each worker make nine, until all are dead
TASK_PAUSE_SECONDS: Final = 1.0  # at most, when it is tasks that crash workers: a flood of them must come to its end

# Failures in a row before a person is told that it will not mend by itself. With the usual pauses they take:
BUDGETS: Final = {
    Role.WORKER: 10,  # 51 s: time for a database to restart; the workers that are there go on
    Role.EXPORTER: 10,  # 51 s: nobody's task waits for it
    Role.POLLER: 8,  # 13 s: nothing that falls due is promoted meanwhile
    Role.ZYGOTE: 8,  # 13 s and eight imports: no worker that dies is replaced meanwhile
}


@dataclass(frozen=True, slots=True)
class End:
    """A child's end, as far as it matters here. Times are seconds of the master's clock."""

    asked_at: float
    at: float
    ready_at: float | None = None  # None for never
    explained: bool = False  # the master ended it, or knows why it ended
    from_outside: bool = False  # somebody else killed it
    in_task: bool = False  # a task ran
    has_worked: bool = False  # it had ended a task before
    words: str = ""


@dataclass(frozen=True, slots=True)
class StartBackoff:
    """What is known of the ends of a pool's children, and since when they go well."""

    failures: int = 0  # in a row
    wait_until: float = 0.0  # the next start
    failed_at: float = -math.inf
    ever_ready: bool = False
    early: tuple[float, ...] = ()  # the times of early deaths in the last minute
    relapses: int = 0  # in a row
    relapsed_at: float = -math.inf
    pause_seconds: float = 0.0  # how long a probe has to stay
    ready_at: float = math.inf  # the first READY since the last relapse
    words: str = ""  # how the last child ended

    # What feeds it

    def after_end(self, end: End, limits: Restarts) -> "StartBackoff":
        """A child ended that was not asked to."""
        known = self.after_work(end.asked_at) if end.has_worked else self
        times = end.asked_at, end.at, limits
        if end.ready_at is None:
            after = known.after_outside_kill(*times) if end.from_outside else known.after_failed_start(*times)
        elif end.explained or end.at - end.ready_at >= limits.healthy_seconds:
            return known
        elif not end.from_outside and not end.has_worked:
            after = known.after_relapse(*times, in_task=end.in_task)
        elif not end.in_task:
            after = known.after_early_death(*times)
        else:
            return known
        return replace(after, words=end.words)

    def after_failed_start(self, asked_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """A child asked for at `asked_at` died before it was READY."""
        if asked_at < self.failed_at:  # of the same wave as one already counted
            return self
        until = now + _pause(self.failures, limits)
        return replace(self, failures=self.failures + 1, failed_at=now, wait_until=until)

    def after_relapse(self, asked_at: float, now: float, limits: Restarts, *, in_task: bool) -> "StartBackoff":
        """A child died soon after it was READY, of its own making, and had done nothing. In its first task, the worker
        may be to blame, or the task."""
        if asked_at < self.relapsed_at:  # of the same wave as one already counted
            return self
        pause = _pause(self.relapses - TOLERATED, limits)
        pause = min(pause, TASK_PAUSE_SECONDS) if in_task else pause
        after = replace(self, relapses=self.relapses + 1, relapsed_at=now, ready_at=math.inf)
        return replace(after, pause_seconds=pause, wait_until=now + pause) if after.relapsing else after

    def after_early_death(self, asked_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """A child died soon after it was READY, and neither itself nor a task is to blame."""
        if self.early and asked_at < self.early[-1]:  # of the same wave as one already counted
            return self
        counted = replace(self, early=(*self._recent(now, limits)[-EARLY_DEATHS:], now))
        return counted.after_failed_start(asked_at, now, limits) if counted.flapping else counted

    def after_outside_kill(self, asked_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """A child was killed before it was READY, neither by us nor for want of memory."""
        after = self.after_early_death if self.ever_ready else self.after_failed_start
        return after(asked_at, now, limits)

    # What ends it

    def after_ready(self, now: float) -> "StartBackoff":
        """A child became READY: starts succeed again. After relapses it has to stay before others follow."""
        ready = replace(self, ever_ready=True, ready_at=min(self.ready_at, now))
        if self.flapping:
            return ready
        wait_until = now + self.pause_seconds if self.relapsing else 0.0
        return replace(ready, failures=0, failed_at=-math.inf, wait_until=wait_until)

    def after_work(self, asked_at: float) -> "StartBackoff":
        """A child asked for at `asked_at` has ended a task; one from before the last relapse proves nothing."""
        return self if asked_at < self.relapsed_at else self._without_relapses()

    def calmed(self, now: float, limits: Restarts) -> "StartBackoff":
        """Forget early deaths after `healthy_seconds`, with the waits they caused, and relapses so long after READY."""
        recent = self._recent(now, limits)
        known = self._without_relapses() if now - self.ready_at >= limits.healthy_seconds else self
        if len(recent) == len(self.early):
            return known
        calm = replace(known, early=recent)
        return calm.after_ready(now) if self.ever_ready and self.flapping else calm

    def _recent(self, now: float, limits: Restarts) -> tuple[float, ...]:
        return tuple(at for at in self.early if at > now - limits.healthy_seconds)

    def _without_relapses(self) -> "StartBackoff":
        if not self.relapses:
            return self
        wait_until = self.wait_until if self.failures else 0.0
        return replace(self, relapses=0, relapsed_at=-math.inf, pause_seconds=0.0, wait_until=wait_until)

    def forgiven(self) -> "StartBackoff":
        """Return it without its failures and relapses, as somebody has asked for a reload or a restart."""
        return StartBackoff(ever_ready=self.ever_ready)

    # What it means

    def allowance(self, now: float, starting: int) -> int | None:
        """How many children may be started beside those `starting`; None for any number."""
        if not self.restrains:
            return None
        return max(0, 1 - starting) if now >= self.wait_until else 0

    def condition(self, role: Role) -> PoolState:
        """What people are shown. A single failure, mended by the next start, is not worth a word."""
        if self.failures + max(0, self.relapses - TOLERATED) >= BUDGETS[role]:
            return PoolState.FATAL
        return PoolState.BACKOFF if self.failures > 1 or self.relapsing else PoolState.RUNNING

    @property
    def failures_in_a_row(self) -> int:
        """Failures in a row, of either kind."""
        return self.failures + self.relapses

    @property
    def restrains(self) -> bool:
        """Whether it limits how many may be started."""
        return self.failures > 0 or self.relapsing

    @property
    def relapsing(self) -> bool:
        """Whether children that were READY die again and again of their own making."""
        return self.relapses > TOLERATED

    @property
    def flapping(self) -> bool:
        """Whether children that were READY die again and again, whoever ends them."""
        return len(self.early) > EARLY_DEATHS

    @property
    def gave_up(self) -> bool:
        """Whether this generation is to be taken as one that never boots."""
        return self.failures >= GIVE_UP_AFTER and not self.ever_ready


def _pause(before: int, limits: Restarts) -> float:
    """How long to wait after a failure that `before` others went before."""
    return doubled(limits.backoff_seconds, limits.backoff_max_seconds, max(before, 0))


CALM: Final = StartBackoff()
