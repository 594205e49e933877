"""Random states of a fleet, drawn from a seed: entries in lanes, running tasks, and closed queues."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rota.protocol.keys import served_as
from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import Done, Release, RetryOutcome
from rota.protocol.store import Store
from rota.protocol.tiers import Domain, QueueCondition, QueueShare, domain_of, pack_tiers, text_of_hours
from rota.protocol.turns import Claim
from rota.protocol.wire import Packed
from support.clock import TimedFleet
from support.protocol import SECOND_US, body_of

_STEPS: Final = 12
_DAY_MS: Final = 24 * 3600 * 1000
_OPEN, _SHUT, _HOUR_US = "open", "shut", 3600 * SECOND_US
_CONDITIONS: Final = {
    "few": "return running < 2",
    "many": "return ready > 2",
    "broken": "return ready.x",
    _OPEN: "",
    _SHUT: "",
}
_TENANTS: Final = {
    f"t{tier}{pattern}": [f"t{tier}-{queue}" for queue in ("a", "B", "c-1", "c-2", "d")]
    for tier in range(3)
    for pattern in ("*", "-*")
}
"""Example queues of each pattern."""
_WEIGHTS: Final = (0.5, 1.0, 1.0, 2.0, 3.0, 7.0)


@dataclass
class Situation:
    """A fleet in its own namespace after some random steps. Its workers serve `tiers`. `held` lists each claimed task
    that has not been settled, with its owner.
    """

    fleet: TimedFleet
    chance: random.Random
    shares: list[list[QueueShare]] = field(default_factory=list)
    held: list[tuple[str, Claim]] = field(default_factory=list)
    made: int = 0

    @classmethod
    def drawn(cls, fleet: TimedFleet, seed: int) -> "Situation":
        """Switch this fleet to a new namespace, create the situation of this seed there, and return it."""
        fleet.store = Store(f"{fleet.keys.namespace.partition('.')[0]}.{seed}")
        fleet.keys = fleet.store.keys
        drawn = cls(fleet, random.Random(seed))
        drawn.shares = [drawn._tier(tier) for tier in range(drawn.chance.randint(1, 3))]
        drawn._announce()
        numbers = {queue: drawn.chance.randint(0, 6) for queue in drawn.queues}
        tasks = [(task_id, queue) for queue, number in numbers.items() for task_id in drawn._ids(number)]
        fleet.enqueue(*(NewTask(task_id, queue, body_of(task_id, queue)) for task_id, queue in tasks))
        for _ in range(_STEPS):
            drawn.chance.choice(drawn._steps())()
        return drawn

    @property
    def domains(self) -> list[Domain]:
        names = [share.name for tier in self.shares for share in tier]
        return [domain_of(tier, names) for tier in self.shares]

    @property
    def tiers(self) -> Packed:
        return pack_tiers(self.domains)

    @property
    def queues(self) -> list[str]:
        """The names of all queues, including the queues that match a pattern."""
        names = [share.name for tier in self.shares for share in tier]
        return [queue for name in names for queue in _TENANTS.get(name, [name])]

    def share_of(self, queue: str) -> QueueShare:
        """Return the share of this queue, or of the pattern that matches it. A share has the weight and the limits of a
        queue.
        """
        shares = {share.name: share for tier in self.shares for share in tier}
        name = served_as(queue, shares)
        assert name is not None
        return replace(shares[name], name=queue)

    def _tier(self, tier: int) -> list[QueueShare]:
        names = [f"q{tier}{place}" for place in range(self.chance.randint(1, 4))]
        if self.chance.random() < 0.4:
            names += self.chance.sample([name for name in _TENANTS if name.startswith(f"t{tier}")], 1)
        return [self._share(name) for name in names]

    def go_on(self) -> None:
        """Remove every obstacle to serving a queue: reap the owners, resume paused queues, and move the clock past
        rates and delays.
        """
        for owner in dict.fromkeys(owner for owner, _ in self.held):
            self.fleet.exit(owner, serving=self.tiers)
        self.held.clear()
        for queue in self.queues:
            self.fleet.run(self.fleet.store.resume(queue))
        self.fleet.clock_us += 15 * SECOND_US
        self.fleet.promote()

    def _share(self, name: str) -> QueueShare:
        rated = self.chance.random() < 0.3
        return QueueShare(
            name,
            self.chance.choice(_WEIGHTS),
            cap=self.chance.choice((0, 0, 0, 1, 2, 4)),
            interval_us=10 * SECOND_US if rated else 0,
            burst=self.chance.randint(1, 3),
            condition=self.chance.choice((*_CONDITIONS, *[""] * 15)),
        )

    def _announce(self) -> None:
        """Announce queues and conditions as a master does. Some conditions depend on counts, one is open for an hour,
        and one opens after that hour.
        """
        with_patterns = tuple(domain for domain in self.domains if domain.has_patterns)
        announced = Announced(domains=with_patterns)
        self.fleet.run(self.fleet.store.announce("node", b"{}", _DAY_MS, self.queues, announced))
        conditions = [QueueCondition(name, "lua", text) for name, text in _CONDITIONS.items() if text]
        now = self.fleet.clock_us
        for name, start in ((_OPEN, now), (_SHUT, now + _HOUR_US)):
            hours = text_of_hours(now + 3 * _HOUR_US, [(start, start + _HOUR_US)])
            conditions.append(QueueCondition(name, "hours", hours))
        self.fleet.run(self.fleet.store.check_conditions(_DAY_MS, conditions))

    def _steps(self) -> list[Callable[[], None]]:
        return [self._enqueue, self._delay, self._push_bare, self._work, self._work, self._work, self._settle,
                self._crash, self._cancel, self._pause, self._pass_time]  # fmt: skip

    def _ids(self, number: int) -> list[str]:
        self.made += number
        return [f"t{self.made - each}" for each in range(number)]

    def _push(self, queue: str, number: int, due: str = "") -> None:
        if number:
            self.fleet.push(*self._ids(number), queue=queue, due=due)

    def _enqueue(self) -> None:
        self._push(self.chance.choice(self.queues), self.chance.randint(1, 5))

    def _delay(self) -> None:
        """Enqueue tasks with a delay of a microsecond or a second, and promote the tasks that are due."""
        queue = self.chance.choice(self.queues)
        self._push(queue, self.chance.randint(1, 3), f"+{self.chance.choice((1, SECOND_US))}")
        self.fleet.promote()

    def _push_bare(self) -> None:
        queue = self.chance.choice(self.queues)
        lane = self.chance.choice((self.fleet.keys.ready_lane, self.fleet.keys.delayed_lane))(queue)
        self.fleet.redis.rpush(lane, *(body_of(each, queue) for each in self._ids(2)))

    def _work(self) -> None:
        owner = self.fleet.register()
        reply = self.fleet.turn(owner, self.tiers, limit=self.chance.randint(1, 4))
        self.held += [(owner, claim) for claim in reply.claims]

    def _settle(self) -> None:
        """Let some of the owners settle all tasks that they hold, with random outcomes."""
        for owner in dict.fromkeys(owner for owner, _ in self.held[: self.chance.randint(0, 4)]):
            claims = [claim for holder, claim in self.held if holder == owner]
            ends = [(claim, self.chance.choice((Done(), Release(), RetryOutcome(1)))) for claim in claims]
            self.fleet.turn(owner, self.tiers, *ends, limit=0)
            self.held = [each for each in self.held if each[0] != owner]
        self.fleet.promote()

    def _crash(self) -> None:
        if self.held:
            owner, claim = self.chance.choice(self.held)
            self.fleet.exit(owner, [claim.entry.id], self.tiers)
            self.held = [each for each in self.held if each[0] != owner]

    def _cancel(self) -> None:
        """Cancel tasks, and enqueue some of their ids again. The old entries in the lanes are then tombstones."""
        for task_id in self.chance.sample([f"t{number + 1}" for number in range(self.made)], min(3, self.made)):
            self.fleet.run(self.fleet.store.cancel(task_id))
            if self.chance.random() < 0.5:
                queue = self.chance.choice(self.queues)
                self.fleet.enqueue(NewTask(task_id, queue, body_of(task_id, queue)))

    def _pause(self) -> None:
        queue = self.chance.choice(self.queues)
        self.fleet.run(self.chance.choice((self.fleet.store.pause, self.fleet.store.resume))(queue))

    def _pass_time(self) -> None:
        self.fleet.clock_us += self.chance.choice((SECOND_US, 15 * SECOND_US))
        self.fleet.promote()
