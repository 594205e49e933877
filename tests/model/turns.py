"""The model of domains with patterns. A domain has the queues and patterns of one tier. This module defines which
queues of a domain take part in the rotation, and which are shut because they may not start a task now.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from model.items import Share
from model.rotation import UNIT, Domain, Rotation, Time, is_pattern

MARK: Final = -1
OPEN: Final = 0
SHUT: Final = 9_000_000_000_000_000
"""The value in `Turns.placed` for a queue that stays shut until it is marked again."""


def share_in(tier: tuple[Share, ...], queue: str) -> Share | None:
    """Return the share with which a tier serves a queue, or None if the tier does not serve it. A share with the
    queue's own name takes precedence over patterns, and a longer pattern over a shorter one.
    """
    fitting = [
        share
        for share in tier
        if share.queue == queue or (is_pattern(share.queue) and queue.startswith(share.queue[:-1]))
    ]
    own = [share for share in fitting if share.queue == queue]
    best = own or sorted(fitting, key=lambda share: len(share.queue))[-1:]
    return replace(best[0], queue=queue, pattern=best[0].queue) if best and not own else next(iter(own), None)


@dataclass
class Turns:
    """The queues of one domain. A queue is marked when it gets an entry or when it may have room for another start. The
    next claim gives each marked queue a place in the rotation. `placed` has each of these queues, with the time until
    which it is shut, which means that it may not start a task.
    """

    tier: tuple[Share, ...]
    marks: set[str] = field(default_factory=set)
    placed: dict[str, int] = field(default_factory=dict)

    @property
    def domain(self) -> Domain:
        return frozenset(share.queue for share in self.tier)

    def mark(self, queue: str) -> bool:
        """Mark a queue if it belongs to this domain, and return whether it belongs to it."""
        if not share_in(self.tier, queue):
            return False
        self.marks.add(queue)
        return True

    def open_due_queues(self, now: int) -> None:
        self.placed = {queue: OPEN if until <= now else until for queue, until in self.placed.items()}

    def place_marked(self, rotation: Rotation) -> None:
        """Give each marked queue a place in the rotation. The queue gets the domain's current time, or keeps its own
        time if that is later. Therefore a queue gains no advantage from having been idle.
        """
        for queue in self.marks - self.placed.keys():
            rotation.come_back(self.domain, queue)
        self.placed |= dict.fromkeys(self.marks, OPEN)
        self.marks.clear()

    def in_order(self, rotation: Rotation) -> list[str]:
        """Return the queues that are not shut, in the order in which they are served."""
        found = [queue for queue, until in self.placed.items() if until == OPEN]
        return sorted(found, key=lambda queue: self._place(rotation, queue))

    def next_to_open(self, rotation: Rotation) -> list[tuple[int, str]]:
        """Return the queues that are shut until a known time, each with that time. The queue that opens first comes
        first.
        """
        found = [(until, queue) for queue, until in self.placed.items() if OPEN < until < SHUT]
        return sorted(found, key=lambda each: (each[0], self._place(rotation, each[1])))

    def _place(self, rotation: Rotation, queue: str) -> tuple[Time, str]:
        return rotation.times[self.domain, queue], queue

    def forget(self, queue: str, rotation: Rotation) -> None:
        """Remove a queue and its time from the domain."""
        self.marks.discard(queue)
        self.placed.pop(queue, None)
        rotation.times.pop((self.domain, queue), None)

    def as_kept(self, rotation: Rotation) -> dict[str, int]:
        """Return the domain as Redis stores it: the marked queues, and the placed queues with their times as sortable
        text.
        """
        kept = dict.fromkeys(self.marks, MARK)
        for queue, until in self.placed.items():
            time, turn = rotation.times[self.domain, queue]
            kept[f"{int(time * UNIT):020} {turn:012} {queue}"] = until
        return kept
