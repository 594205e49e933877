"""The back-off of one generation of a pool: an immutable value that determines when the next child may be started.

1. Each death before READY doubles the wait, up to a limit. If children that were started together die together, they
   count as one death.
2. During the wait, no child is started. After the wait, one child at a time is started as a *probe*. When a probe is
   READY, the back-off ends.
3. Children that die soon after READY through their own fault, before they have finished a task, are *early exits*. The
   first TOLERATED in a row are restarted at once. After that, each early exit doubles the wait too, and a probe that is
   READY has to stay alive for the same time before the next child is started. The series of early exits ends when a
   child finishes a task or has been READY for a minute.
4. Children that die soon after READY for any other reason, for example because someone kills them, are restarted at
   once. If there are more than SUDDEN_DEATHS of these *sudden deaths* in a minute, further ones count as deaths before
   READY. Workers that are killed at the same time count as one death, so fifty workers that are killed together, even
   three times, do not cause a back-off. Once the generation has worked, kills from outside during the start count as
   sudden deaths too.
5. A worker that has finished a task and then dies in another does not count, because tasks have their own crash limits.

`condition` returns the state that `rota status` shows.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from rota.durations import doubled
from rota_supervisor.config.model import Restarts
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import PoolState

GIVE_UP_AFTER: Final = 5  # a generation that never had a READY child is given up after this many failures in a row
SUDDEN_DEATHS: Final = 100  # if more children die suddenly in a minute, the back-off slows further starts
# This many early exits in a row cause no delay. For example, three tasks that crash any worker cause nine early exits
# before all three are dead.
TOLERATED: Final = 10
# The longest wait if a task may be at fault. It is short, because such tasks soon reach their crash limits.
TASK_PAUSE_SECONDS: Final = 1.0

# After this many failures in a row, the state is FATAL, because the pool is unlikely to recover by itself. The comments
# give the time until then with the default pauses.
BUDGETS: Final = {
    Role.WORKER: 10,  # after 51 s: long enough for a database to restart, while the other workers continue
    Role.EXPORTER: 10,  # after 51 s: no task depends on the exporter
    Role.POLLER: 8,  # after 13 s: no due task is promoted during this time
    Role.ZYGOTE: 8,  # after 13 s and eight imports: no worker that dies is replaced during this time
}


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The facts about a child's end on which the back-off depends. Times are in seconds on the master's clock."""

    requested_at: float
    at: float
    ready_at: float | None = None  # when the child became READY, or None if it never did
    explained: bool = False  # whether the master ended the child, or knows why it ended
    from_outside: bool = False  # whether something other than the master or the kernel killed the child
    in_task: bool = False  # whether a task was running when the child ended
    has_worked: bool = False  # whether the child had finished a task before
    text: str = ""  # how the child ended, in words


@dataclass(frozen=True, slots=True)
class StartBackoff:
    """The recent starts and exits of a pool's children, and the wait before the next start that follows from them."""

    failures: int = 0  # the number of failed starts in a row
    wait_until: float = 0.0  # the earliest time of the next start
    failed_at: float = -math.inf  # the time of the last failed start
    ever_ready: bool = False  # whether a child of this generation was ever READY
    sudden_deaths: tuple[float, ...] = ()  # the times of deaths soon after READY without the child's fault
    early_exits: int = 0  # the number of early exits in a row
    early_exit_at: float = -math.inf  # the time of the last early exit
    pause_seconds: float = 0.0  # how long a probe has to stay alive before the next child is started
    ready_at: float = math.inf  # when a child first became READY after the last early exit
    last_end: str = ""  # how the last child ended, in words

    # Deaths

    def after_end(self, end: ChildEnd, limits: Restarts) -> "StartBackoff":
        """Return the back-off after the end of a child that was not ordered to leave."""
        known = self.after_work(end.requested_at) if end.has_worked else self
        times = end.requested_at, end.at, limits
        if end.ready_at is None:
            after = known.after_outside_kill(*times) if end.from_outside else known.after_failed_start(*times)
        elif end.explained or end.at - end.ready_at >= limits.healthy_seconds:
            return known
        elif not end.from_outside and not end.has_worked:
            after = known.after_early_exit(*times, in_task=end.in_task)
        elif not end.in_task:
            after = known.after_sudden_death(*times)
        else:
            return known
        return replace(after, last_end=end.text)

    def after_failed_start(self, requested_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """Return the back-off after a child that was requested at `requested_at` has died before it was READY."""
        # The child was started together with one whose death has already been counted.
        if requested_at < self.failed_at:
            return self
        until = now + _pause(self.failures, limits)
        return replace(self, failures=self.failures + 1, failed_at=now, wait_until=until)

    def after_early_exit(self, requested_at: float, now: float, limits: Restarts, *, in_task: bool) -> "StartBackoff":
        """Return the back-off after a child has died soon after READY through its own fault, without having finished a
        task.

        If the child died in its first task, either the worker or the task may be the cause.
        """
        # The child was started together with one whose early exit has already been counted.
        if requested_at < self.early_exit_at:
            return self
        pause = _pause(self.early_exits - TOLERATED, limits)
        pause = min(pause, TASK_PAUSE_SECONDS) if in_task else pause
        after = replace(self, early_exits=self.early_exits + 1, early_exit_at=now, ready_at=math.inf)
        return replace(after, pause_seconds=pause, wait_until=now + pause) if after.exits_early else after

    def after_sudden_death(self, requested_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """Return the back-off after a child has died soon after READY although neither the child nor a task was at
        fault."""
        # If the child was requested before the last sudden death, the two deaths count as one.
        if self.sudden_deaths and requested_at < self.sudden_deaths[-1]:
            return self
        counted = replace(self, sudden_deaths=(*self._recent(now, limits)[-SUDDEN_DEATHS:], now))
        return counted.after_failed_start(requested_at, now, limits) if counted.flapping else counted

    def after_outside_kill(self, requested_at: float, now: float, limits: Restarts) -> "StartBackoff":
        """Return the back-off after a child that was not READY has been killed by something other than the master or
        the OOM killer."""
        after = self.after_sudden_death if self.ever_ready else self.after_failed_start
        return after(requested_at, now, limits)

    # Recovery

    def after_ready(self, now: float) -> "StartBackoff":
        """Return the back-off after a child has become READY. After early exits, the child must stay alive for a while
        before others are started."""
        ready = replace(self, ever_ready=True, ready_at=min(self.ready_at, now))
        if self.flapping:
            return ready
        wait_until = now + self.pause_seconds if self.exits_early else 0.0
        return replace(ready, failures=0, failed_at=-math.inf, wait_until=wait_until)

    def after_work(self, requested_at: float) -> "StartBackoff":
        """Return the back-off after a child has finished a task, which ends a series of early exits.

        If the child was requested before the last early exit, nothing changes, because its work proves nothing about
        the children that were started later.
        """
        return self if requested_at < self.early_exit_at else self._without_early_exits()

    def calmed(self, now: float, limits: Restarts) -> "StartBackoff":
        """Return the back-off after old trouble has expired. Sudden deaths are forgotten after `healthy_seconds`. Early
        exits are forgotten when a child has been READY for `healthy_seconds` after the last of them."""
        recent = self._recent(now, limits)
        known = self._without_early_exits() if now - self.ready_at >= limits.healthy_seconds else self
        if len(recent) == len(self.sudden_deaths):
            return known
        calm = replace(known, sudden_deaths=recent)
        return calm.after_ready(now) if self.ever_ready and self.flapping else calm

    def _recent(self, now: float, limits: Restarts) -> tuple[float, ...]:
        return tuple(at for at in self.sudden_deaths if at > now - limits.healthy_seconds)

    def _without_early_exits(self) -> "StartBackoff":
        if not self.early_exits:
            return self
        wait_until = self.wait_until if self.failures else 0.0
        return replace(self, early_exits=0, early_exit_at=-math.inf, pause_seconds=0.0, wait_until=wait_until)

    def reset(self) -> "StartBackoff":
        """Return the back-off without failures and early exits, for use after a reload or a restart."""
        return StartBackoff(ever_ready=self.ever_ready)

    # Results

    def allowance(self, now: float, starting: int) -> int | None:
        """Return how many more children may be started now, if `starting` children are already starting. None means any
        number."""
        if not self.restrains:
            return None
        return max(0, 1 - starting) if now >= self.wait_until else 0

    def condition(self, role: Role) -> PoolState:
        """Return the state of the pool for `rota status`. A single failure is not shown."""
        if self.failures + max(0, self.early_exits - TOLERATED) >= BUDGETS[role]:
            return PoolState.FATAL
        return PoolState.BACKOFF if self.failures > 1 or self.exits_early else PoolState.RUNNING

    @property
    def failures_in_a_row(self) -> int:
        """The number of failed starts and early exits in a row."""
        return self.failures + self.early_exits

    @property
    def restrains(self) -> bool:
        """Whether the back-off limits how many children may be started."""
        return self.failures > 0 or self.exits_early

    @property
    def exits_early(self) -> bool:
        """Whether children that were READY keep dying through their own fault."""
        return self.early_exits > TOLERATED

    @property
    def flapping(self) -> bool:
        """Whether children that were READY keep dying, whatever the cause."""
        return len(self.sudden_deaths) > SUDDEN_DEATHS

    @property
    def gave_up(self) -> bool:
        """Whether the generation has failed GIVE_UP_AFTER times and never had a READY child."""
        return self.failures >= GIVE_UP_AFTER and not self.ever_ready


def _pause(before: int, limits: Restarts) -> float:
    """Return how long to wait after a failure that follows `before` other failures."""
    return doubled(limits.backoff_seconds, limits.backoff_max_seconds, max(before, 0))


CALM: Final = StartBackoff()
