"""Which generation workers come from, as a value: the one in force and the one on its way.

A candidate is LOADING until its zygote is ready and its tasks' queues are served; then it is *promoted*: its
configuration is in force and workers are replaced, one beside the others. When all are, it is current. A
candidate that fails at any point is dropped, and what was current is desired again.
"""

from dataclasses import dataclass, replace
from typing import Final

from rota_supervisor.config.model import Config

FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Generation:
    """One loading of configuration and user code."""

    number: int
    config: Config


@dataclass(frozen=True, slots=True)
class Rollout:
    """`current` is None until the first generation has worked. `last`: the greatest number ever given."""

    current: Generation | None
    candidate: Generation | None
    promoted: bool = False
    last: int = FIRST

    @classmethod
    def first(cls, config: Config) -> "Rollout":
        """At the start: the first generation is on its way."""
        return cls(None, Generation(FIRST, config))

    @property
    def latest(self) -> Generation:
        """What was asked for last."""
        found = self.candidate or self.current
        assert found is not None
        return found

    @property
    def in_force(self) -> Generation:
        """Whose configuration holds now: at the start the candidate's, as there is no other."""
        found = self.candidate if self.promoted or self.current is None else self.current
        assert found is not None
        return found

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Those that need a zygote: until a candidate is current, the old one stays to go back to."""
        return tuple(found for found in (self.current, self.candidate) if found is not None)

    def of(self, number: int) -> Generation | None:
        """The generation of that number, when it is still wanted."""
        return next((found for found in self.generations if found.number == number), None)

    def with_candidate(self, config: Config, *, proven: bool) -> "Rollout":
        """A new generation is on its way; an earlier candidate is forgotten: the last one wins.

        Unless it is promoted and `proven`, its workers being READY: then it is what we go back to.
        """
        current = self.candidate if self.promoted and proven else self.current
        number = self.last + 1
        return Rollout(current, Generation(number, config), last=number)

    def with_config(self, config: Config) -> "Rollout":
        """The same generation under a configuration that changes nothing its workers depend on."""
        if self.candidate is not None:
            return replace(self, candidate=replace(self.candidate, config=config))
        assert self.current is not None
        return replace(self, current=replace(self.current, config=config))

    def promote(self) -> "Rollout":
        """The candidate's zygote is ready."""
        return replace(self, promoted=True)

    def commit(self) -> "Rollout":
        """The candidate's workers have taken over."""
        return Rollout(self.candidate, None, last=self.last)

    def roll_back(self) -> "Rollout":
        """The candidate does not work."""
        return Rollout(self.current, None, last=self.last)
