"""Which queues of patterns are shown by their own names: the largest. The rest are added up as one, `_other`.

Only what goes up and down is shown so. What only grows, as how many tasks were accepted, is counted for each pattern as
a whole: of a queue that is forgotten and comes back it would begin anew.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rota.protocol.patterns import is_pattern
from rota.protocol.views import QueueState
from rota.telemetry.label_values import OTHER
from rota.telemetry.queue_labels import QueueLabels

MOST_STRANGE: Final = 500  # queues that stand in no tier, and are none of a pattern
_STAYS_UP_TO: Final = 2
_ADDED: Final = ("ready", "scheduled", "overdue", "inflight", "dead", "accepted")


def size_of(state: QueueState) -> int:
    """Return how many tasks a queue has to run."""
    return state.ready + state.scheduled + state.inflight


def as_one(states: Sequence[QueueState]) -> QueueState:
    """Return these queues as one: numbers are added up, ages are the longest. It is paused or closed when one is, and
    served unless one that has tasks is not."""
    return QueueState(
        queue=OTHER,
        **{name: sum(getattr(each, name) for each in states) for name in _ADDED},
        oldest_ready_age_us=max((each.oldest_ready_age_us for each in states), default=0),
        oldest_overdue_age_us=max((each.oldest_overdue_age_us for each in states), default=0),
        paused=any(each.paused for each in states),
        served=all(each.served or not each.ready for each in states),
        closed_age_us=max((each.closed_age_us for each in states), default=0),
        closed_by=next((each.closed_by for each in states if each.closed_by), ""),
        condition_error=next((each.condition_error for each in states if each.condition_error), ""),
    )


class ShownQueues(NamedTuple):
    """The queues of tiers, strange ones, the largest of patterns, and all others of patterns as one.

    `accepted`: tasks, by queue and by pattern. `pattern_of`: of the largest; of `_other` itself. `oldest_ready_us`: by
    pattern, over all its queues that are not paused.
    """

    queues: tuple[QueueState, ...]
    accepted: dict[str, int]
    pattern_of: dict[str, str]
    oldest_ready_us: dict[str, int]


class Largest:
    """Chooses which queues are shown, by the names and patterns of the tiers: `top` of those that only a pattern names.

    Who was chosen stays while it is among twice as many largest: with queues of one size each look would begin other
    series.
    """

    def __init__(self, served: Sequence[str], top: int) -> None:
        self.served = tuple(served)
        self._labels = QueueLabels(served)
        self._top = top
        self._chosen: frozenset[str] = frozenset()
        self._accepted = dict.fromkeys(filter(is_pattern, served), 0)

    def choose(self, states: Sequence[QueueState], *, all_seen: bool) -> ShownQueues:
        """Choose among these queues. Patterns have a row too, of what was accepted in queues that are forgotten.
        `all_seen`: there are no others."""
        rows = [each for each in states if not is_pattern(each.queue)]
        of_patterns = [each for each in rows if self._labels.of(each.queue) != each.queue]
        own = sorted((each for each in rows if self._labels.of(each.queue) == each.queue), key=self._place_of)
        del own[len(self.served) + MOST_STRANGE :]
        if all_seen:
            self._add_up_accepted(states)
        chosen = self._largest_and_rest(of_patterns)
        return ShownQueues(
            (*own, *chosen),
            {each.queue: each.accepted for each in own} | self._accepted,
            {each.queue: self._labels.of(each.queue) for each in chosen},
            self._oldest_ready(of_patterns),
        )

    def _place_of(self, state: QueueState) -> tuple[bool, bool]:
        """Queues of tiers first, and of strange ones those that have something that nobody runs."""
        return state.queue not in self.served, state.served or not size_of(state)

    def _oldest_ready(self, of_patterns: Iterable[QueueState]) -> dict[str, int]:
        oldest = dict.fromkeys(self._accepted, 0)
        for state in of_patterns:
            if not state.paused:
                label = self._labels.of(state.queue)
                oldest[label] = max(oldest[label], state.oldest_ready_age_us)
        return oldest

    def _add_up_accepted(self, states: Sequence[QueueState]) -> None:
        found = dict.fromkeys(self._accepted, 0)
        for state in states:
            label = self._labels.of(state.queue)
            if label in found:
                found[label] += state.accepted
        # A queue that is forgotten while portions are looked at may be counted in none.
        self._accepted = {label: max(number, self._accepted[label]) for label, number in found.items()}

    def _largest_and_rest(self, states: list[QueueState]) -> tuple[QueueState, ...]:
        if not self._accepted:
            return ()
        ranked = sorted(states, key=lambda each: (-size_of(each), each.queue))
        near = sorted(ranked[: _STAYS_UP_TO * self._top], key=lambda each: each.queue not in self._chosen)
        self._chosen = frozenset(each.queue for each in near[: self._top])
        rest = [each for each in ranked if each.queue not in self._chosen]
        return (*near[: self._top], as_one(rest))
