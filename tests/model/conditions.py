"""Whether a queue is open by its condition."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from model.places import Places

LOOK_AGAIN_US = 1_000_000
LONGEST_WAIT_US = 5_000_000


class Seen(NamedTuple):
    """What a rule goes by; `now` in seconds."""

    ready: int
    delayed: int
    running: int
    now: float


@dataclass(frozen=True)
class Hours:
    """Open at these times, as far as they are known."""

    known_until: int
    intervals: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Rule:
    """Open when it holds; `opens` returns None for one that fails."""

    text: str
    opens: Callable[[Seen], bool | None]


@dataclass(frozen=True)
class Verdict:
    """`after`: how long until a closed queue is to be looked at again. `by_counts`: what is claimed may decide it."""

    is_open: bool
    after: int = 0
    fails: bool = False
    by_counts: bool = False


@dataclass
class Conditions:
    """Those that are defined, each until some time."""

    places: Places
    defined: dict[str, tuple[int, Hours | Rule]] = field(default_factory=dict)

    def verdict(self, queue: str, name: str) -> Verdict:
        match self.defined.get(name):
            case (_, Hours() as hours):
                return self._by_hours(hours)
            case (_, Rule() as rule):
                return self._by_rule(queue, rule)
        return Verdict(is_open=False, after=LOOK_AGAIN_US, fails=True)

    def _by_hours(self, hours: Hours) -> Verdict:
        now = self.places.now
        if any(start <= now < end for start, end in hours.intervals):
            return Verdict(is_open=True)
        if now >= hours.known_until:
            return Verdict(is_open=False, after=LOOK_AGAIN_US, fails=True)
        opens = min((start for start, _ in hours.intervals if start > now), default=hours.known_until)
        return Verdict(is_open=False, after=min(opens - now, LONGEST_WAIT_US))

    def _by_rule(self, queue: str, rule: Rule) -> Verdict:
        counts = self.places.counts
        waiting, running = counts[f"delayed:{queue}"], counts[f"running:{queue}"]
        opens = rule.opens(Seen(len(self.places.entries(queue)), waiting, running, self.places.now / 1e6))
        after = 0 if opens else LOOK_AGAIN_US
        return Verdict(is_open=bool(opens), after=after, fails=opens is None, by_counts=True)
