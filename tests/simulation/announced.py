"""What the masters have announced, as the simulated server stores it: nodes, served queues, conditions and closed
queues.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rota.protocol.nodes import Announced
from rota.protocol.tiers import QueueCondition
from rota.protocol.views import ClosedQueue

SHUT: Final = "return false"
BROKEN: Final = "return ready + nil"
UNDEFINED: Final = "no master has defined it"
FAILS: Final = "attempt to perform arithmetic on a nil value"


def fault_of(chunk: str) -> str | None:
    """Return None if the condition opens its queue. If the condition closes the queue, return the error in the
    condition, or "" if there is no error.
    """
    return {SHUT: "", BROKEN: FAILS, "": UNDEFINED}.get(chunk)


@dataclass(slots=True)
class Announcements:
    """The announcements of the masters. Each has the time in us until which it is valid. A queue with a condition
    always counts as if it had waiting tasks.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    domains: dict[str, int] = field(default_factory=dict)
    shares: dict[str, tuple[int, str]] = field(default_factory=dict)  # the condition of each queue, by name
    conditions: dict[str, tuple[int, str]] = field(default_factory=dict)  # the Lua chunk of each condition, by name
    closed: dict[str, int] = field(default_factory=dict)  # the time at which each closed queue was closed

    def announce(self, now: int, node: str, until: int, announced: Announced) -> int:
        """Store the announcements of a node, and return the number of nodes."""
        self.nodes = {name: ends for name, ends in self.nodes.items() if ends > now} | {node: until}
        self.shares |= {share.name: (until, share.condition) for share in announced.shares}
        self.domains |= {domain.name: until for domain in announced.domains}
        self.domains = {name: ends for name, ends in self.domains.items() if ends > now}
        return len(self.nodes)

    def check_conditions(self, now: int, until: int, conditions: Iterable[QueueCondition]) -> tuple[ClosedQueue, ...]:
        """Define these conditions, and return the queues that they close."""
        self.conditions |= {each.name: (until, each.text) for each in conditions}
        self.conditions = {name: known for name, known in self.conditions.items() if known[0] >= now}
        rows = [row for queue in self.shares if (row := self._closed_row(queue, now))]
        self.closed = {row.queue: now - row.closed_age_us for row in rows}
        return tuple(rows)

    def _closed_row(self, queue: str, now: int) -> ClosedQueue | None:
        until, name = self.shares[queue]
        fault = fault_of(self.conditions.get(name, (0, ""))[1]) if name and until > now else None
        since = min(self.closed.get(queue, now), now)
        return None if fault is None else ClosedQueue(queue, now - since, name, fault)
