"""The model of conditions: whether a queue's condition is open, and when it must be checked again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from model.places import Places

LOOK_AGAIN_US = 1_000_000
LONGEST_WAIT_US = 5_000_000
STEP_US, NEAR_US = 50_000, 1_000


class Seen(NamedTuple):
    """The values that a rule may use: the numbers of ready, delayed and running tasks, and the time `now` in Unix
    seconds.
    """

    ready: int
    delayed: int
    running: int
    now: float


@dataclass(frozen=True)
class Hours:
    """A condition that is open during certain intervals. The intervals are known up to the time `known_until`. After
    that time, the condition fails.
    """

    known_until: int
    intervals: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Rule:
    """A condition in Lua. `text` is its code, and `opens` is the same rule in Python. `opens` returns None when the Lua
    code would fail.
    """

    text: str
    opens: Callable[[Seen], bool | None]


@dataclass(frozen=True)
class Verdict:
    """The result of a condition. `after` is the time in us after which a closed queue is checked again. `by_counts` is
    set if the condition may use the numbers of tasks, which change with each claim.
    """

    is_open: bool
    after: int = 0
    fails: bool = False
    by_counts: bool = False


def first_opening(opens_in: Callable[[int], bool]) -> int:
    """Return the number of microseconds after which a closed condition opens, or one second if it does not open within
    a second. The search first checks every 50 ms. It then narrows the last step down to about 1 ms.
    """
    opens = next((us for us in range(STEP_US, LOOK_AGAIN_US, STEP_US) if opens_in(us)), LOOK_AGAIN_US)
    shut = opens - STEP_US
    while opens < LOOK_AGAIN_US and opens - shut > NEAR_US:
        middle = (shut + opens) // 2
        shut, opens = (shut, middle) if opens_in(middle) else (middle, opens)
    return opens


@dataclass
class Conditions:
    """The conditions that masters have defined, each with the time at which its definition expires."""

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
        ready, now = len(self.places.entries(queue)), self.places.now

        def opens_in(us: int) -> bool | None:
            return rule.opens(Seen(ready, waiting, running, (now + us) / 1e6))

        opens = opens_in(0)
        after = 0 if opens else LOOK_AGAIN_US
        if opens is False and "now" in rule.text:
            after = first_opening(lambda us: bool(opens_in(us)))
        return Verdict(is_open=bool(opens), after=after, fails=opens is None, by_counts=True)
