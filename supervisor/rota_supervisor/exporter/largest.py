"""Which queues of patterns are shown by their own names: the largest. The rest are added up as one, `_other`.

Only what goes up and down is shown so. What only grows, as how many tasks were accepted, is counted for each pattern as
a whole: of a queue that is forgotten and comes back it would begin anew.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rota.protocol.patterns import is_pattern
from rota.protocol.views import QueueState
from rota.telemetry.metrics import OTHER
from rota.telemetry.queue_labels import QueueLabels

MOST_STRANGE: Final = 500  # queues that stand in no tier, and are none of a pattern
_STAYS_UP_TO: Final = 2
_ADDED: Final = ("ready", "scheduled", "overdue", "inflight", "dead", "accepted")


def size_of(state: QueueState) -> int:
    """Return how many tasks a queue has to run."""
    return state.ready + state.scheduled + state.inflight


def as_one(states: Sequence[QueueState]) -> QueueState:
    """Return these queues as one: numbers are added up, ages are the longest. It is paused when one is, and served
    unless one that has tasks is not."""
    return QueueState(
        queue=OTHER,
        **{name: sum(getattr(each, name) for each in states) for name in _ADDED},
        oldest_ready_age_us=max((each.oldest_ready_age_us for each in states), default=0),
        oldest_overdue_age_us=max((each.oldest_overdue_age_us for each in states), default=0),
        paused=any(each.paused for each in states),
        served=all(each.served or not each.ready for each in states),
    )


class Shown(NamedTuple):
    """The queues of tiers, strange ones, the largest of patterns, and all others of patterns as one; and how many tasks
    were accepted, by queue and by pattern."""

    queues: tuple[QueueState, ...]
    accepted: dict[str, int]


class Largest:
    """Chooses which queues are shown, by the names and patterns of the tiers: `top` of those that only a pattern names.

    Who was chosen stays while it is among twice as many largest: with queues of one size each look would begin other
    series.
    """

    def __init__(self, served: Sequence[str], top: int) -> None:
        self.named = tuple(name for name in served if not is_pattern(name))
        self._labels = QueueLabels(served)
        self._top = top
        self._chosen: frozenset[str] = frozenset()
        self._accepted: dict[str, int] = {}
        self._by_pattern = dict.fromkeys(filter(is_pattern, served), 0)

    def choose(self, states: Iterable[QueueState], *, all_seen: bool) -> Shown:
        """Choose among these queues. `all_seen`: one that is not among them was forgotten, and would begin at 0."""
        own: list[QueueState] = []
        of_patterns: list[QueueState] = []
        for state in states:
            (own if self._labels.of(state.queue) == state.queue else of_patterns).append(state)
        # Of strange ones those first that have something that nobody runs.
        own.sort(key=lambda each: (each.queue not in self.named, each.served or not size_of(each)))
        del own[len(self.named) + MOST_STRANGE :]
        accepted = {each.queue: each.accepted for each in own} | self._accepted_by_pattern(of_patterns, all_seen)
        return Shown((*own, *self._largest_and_rest(of_patterns)), accepted)

    def _largest_and_rest(self, states: list[QueueState]) -> Iterable[QueueState]:
        if not self._by_pattern:
            return ()
        ranked = sorted(states, key=lambda each: (-size_of(each), each.queue))
        near = sorted(ranked[: _STAYS_UP_TO * self._top], key=lambda each: each.queue not in self._chosen)
        self._chosen = frozenset(each.queue for each in near[: self._top])
        rest = [each for each in ranked if each.queue not in self._chosen]
        return (*near[: self._top], as_one(rest))

    def _accepted_by_pattern(self, states: list[QueueState], all_seen: bool) -> dict[str, int]:
        """What was found at the first look, and what came since."""
        found = {each.queue: each.accepted for each in states}
        for queue, accepted in found.items():
            before = self._accepted.get(queue, 0)
            self._by_pattern[self._labels.of(queue)] += accepted - before if accepted >= before else accepted
        self._accepted = found if all_seen else self._accepted | found
        return self._by_pattern
