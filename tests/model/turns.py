"""Queues of a pattern: which of them stand in turn in a domain, and since which time."""

from dataclasses import dataclass, field, replace

from model.items import Share
from model.rotation import Domain, Rotation


def is_pattern(name: str) -> bool:
    return name.endswith("*")


def share_in(tier: tuple[Share, ...], queue: str) -> Share | None:
    """How a tier serves a queue: by its own name, else by the longest pattern that it fits."""
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
    """One domain. A queue is marked when it came to have something, and gets its place at the next claim."""

    tier: tuple[Share, ...]
    marks: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)

    @property
    def domain(self) -> Domain:
        return frozenset(share.queue for share in self.tier)

    def mark(self, queue: str) -> None:
        if share_in(self.tier, queue):
            self.marks.add(queue)

    def place_marked(self, rotation: Rotation) -> None:
        """At the clock, or at its own time if that is later: nobody gains by having been empty."""
        for queue in self.marks - self.placed:
            rotation.come_back(self.domain, queue)
        self.placed |= self.marks
        self.marks.clear()

    def in_order(self, rotation: Rotation) -> list[str]:
        return sorted(self.placed, key=lambda queue: (rotation.times[self.domain, queue], queue))
