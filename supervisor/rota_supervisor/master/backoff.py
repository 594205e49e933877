"""The back-off of one generation of one pool, as a value: when the next child may be started.

1. Deaths before READY feed it: each doubles the wait, up to a limit. Children started together that die
   together count once.
2. While it waits nothing starts; then one probe at a time, until one is READY, which ends it.
3. Deaths after READY restart at once, but not without bound: more than EARLY_DEATHS of children younger than a
   healthy minute, of which none ran a task, count as deaths before READY. These too count once a wave: fifty workers
   that somebody kills together three times are no reason to go slow.
4. So do children that somebody else kills while they start, of a generation that has worked: nothing is wrong
   with what they run, and a kill of many at once must not slow those that replace them.
"""

from dataclasses import dataclass, replace
from typing import Final

from rota_supervisor.config.model import Restarts

GIVE_UP_AFTER: Final = 5  # failures in a row of a generation that never had a READY child
EARLY_DEATHS: Final = 100  # a minute; a fork takes 15 ms, so a worker that dies at once is slowed after 2 s
_MOST_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """`failures` in a row; `wait_until` the next start; `early`: times of early deaths in the last minute."""

    failures: int = 0
    wait_until: float = 0.0
    failed_at: float = float("-inf")
    ever_ready: bool = False
    early: tuple[float, ...] = ()

    def after_failed_start(self, asked_at: float, now: float, limits: Restarts) -> "Backoff":
        """A child asked for at `asked_at` died before it was READY."""
        if asked_at < self.failed_at:  # of the same wave as one already counted
            return self
        wait = limits.backoff_seconds * 2.0 ** min(self.failures, _MOST_DOUBLINGS)
        until = now + min(wait, limits.backoff_max_seconds)
        return replace(self, failures=self.failures + 1, failed_at=now, wait_until=until)

    def after_early_death(self, asked_at: float, now: float, limits: Restarts) -> "Backoff":
        """A child died soon after it was READY, and no task is to blame."""
        if self.early and asked_at < self.early[-1]:  # of the same wave as one already counted
            return self
        recent = tuple(at for at in self.early if at > now - limits.healthy_seconds)[-EARLY_DEATHS:]
        counted = replace(self, early=(*recent, now))
        return counted.after_failed_start(asked_at, now, limits) if counted.flapping else counted

    def after_outside_kill(self, asked_at: float, now: float, limits: Restarts) -> "Backoff":
        """A child was killed before it was READY, neither by us nor for want of memory."""
        after = self.after_early_death if self.ever_ready else self.after_failed_start
        return after(asked_at, now, limits)

    def after_ready(self) -> "Backoff":
        """A child became READY."""
        if self.flapping:
            return replace(self, ever_ready=True)
        return replace(self, failures=0, failed_at=float("-inf"), wait_until=0.0, ever_ready=True)

    def calmed(self, now: float, limits: Restarts) -> "Backoff":
        """Forget early deaths that are older than a healthy minute, and with them what they had fed."""
        recent = tuple(at for at in self.early if at > now - limits.healthy_seconds)
        if len(recent) == len(self.early):
            return self
        calm = replace(self, early=recent)
        return calm.after_ready() if self.ever_ready and self.flapping else calm

    def allowance(self, now: float, starting: int) -> int | None:
        """How many children may be started beside those `starting`; None for any number."""
        if not self.failures:
            return None
        return max(0, 1 - starting) if now >= self.wait_until else 0

    @property
    def flapping(self) -> bool:
        """Whether children that were READY die again and again."""
        return len(self.early) > EARLY_DEATHS

    @property
    def gave_up(self) -> bool:
        """Whether this generation is to be taken as one that never boots."""
        return self.failures >= GIVE_UP_AFTER and not self.ever_ready


CALM: Final = Backoff()
