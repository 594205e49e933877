"""The base class of all rules of the model test. It holds a fleet, the model of that fleet, and the workers, and
delivers their calls.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from machine.picture import Picture, take_picture
from machine.task_states import StateWatch
from model.conditions import Hours, Rule
from model.grouping import GroupModel
from model.items import UNKNOWN_QUEUE, Serving, Share
from rota.protocol.nodes import Announced, heartbeat_of
from rota.protocol.outcome import Outcome
from rota.protocol.schedule_store import StoredSchedule
from rota.protocol.scripts import ScriptCall
from rota.protocol.tiers import Domain, QueueCondition, QueueShare, domain_of, pack_tiers, text_of_hours
from rota.protocol.turns import Claim, RateRequest
from rota.protocol.views import ClosedQueue
from rota.server.server_errors import PushedBack
from support.clock import TimedFleet
from support.protocol import LEASE_MS, RUN_RECORD
from support.servers import Server

T = TypeVar("T")

SECOND_US: Final = 1_000_000
LEASE_US: Final = LEASE_MS * 1000
HOUR_MS: Final = 3_600_000
HOLD_MS: Final = 600_000  # this time is measured by the server's own clock, so no example may take that long
HIGH, FAST, SLOW = Share("high"), Share("fast", weight=3, condition="hours"), Share("slow")
CAPPED, RATED, PLAIN = Share("capped", cap=2), Share("rated", interval_us=SECOND_US, burst=2), Share("plain")
FEW: Final = Share("few", condition="rule")
TENANTS, LARGE = Share("t-*", weight=2, cap=2), Share("t-l*", interval_us=SECOND_US, burst=1, condition="rule")
PATTERNS: Final = (TENANTS, LARGE)
SERVINGS: Final[dict[str, Serving]] = {
    "all": ((HIGH,), (FAST, SLOW), (CAPPED, RATED, FEW, PLAIN), PATTERNS),
    "some": ((SLOW, FAST), (PLAIN,)),
    "even": ((SLOW, CAPPED, PLAIN),),
    "tenants": ((HIGH,), (*PATTERNS, FAST, SLOW)),
}
PATTERN_OF: Final = {"t-a": TENANTS, "t-b": TENANTS, "t-la": LARGE, "t-lb": LARGE}
NAMED: Final = (HIGH, FAST, SLOW, CAPPED, RATED, FEW, PLAIN)
SHARES: Final = {share.queue: share for share in NAMED} | {
    queue: replace(share, queue=queue, pattern=share.queue) for queue, share in PATTERN_OF.items()
}
QUEUES: Final = list(SHARES)
RATES_OF_TASKS: Final = {
    "slow": RateRequest(b"", "slow", 2 * SECOND_US, 1),
    "quick": RateRequest(b"", "quick", SECOND_US, 2),
}
SERVED: Final = (*NAMED, *PATTERNS)
NAMES: Final = [share.queue for share in SERVED]
"""The names and patterns in tiers. Each has a doorbell."""
UNIQUE_KEYS: Final = ("k1", "k2", "k3")
REFUSED_WHEN_FULL: Final = frozenset({"enqueue", "add_members", "revive", "advance", "put_schedule", "run_schedule"})
"""The scripts that a full server refuses."""

ANSWERED, REPEATED, DROPPED, LATE, COPIED = "answered", "repeated", "dropped", "late", "copied"
DELIVERIES: Final = st.sampled_from([ANSWERED] * 6 + [REPEATED, DROPPED, LATE, COPIED])
"""The ways in which a call is delivered: with a reply, repeated after a lost reply, with a lost reply and a dead
sender, delayed until the sender has given up, or with a reply and a copy of the call that arrives later.
"""

_examples = itertools.count()


def share_of(share: Share) -> QueueShare:
    """Convert a share of the model to the product's type `QueueShare`."""
    return QueueShare(share.queue, share.weight, share.cap, share.interval_us, share.burst, share.condition)


def domains_of(serving: Serving) -> list[Domain]:
    return [domain_of(list(map(share_of, tier))) for tier in serving]


def bell_of(queue: str) -> str:
    """Return the name of the doorbell at which the workers of a queue wait. It is named after the queue's pattern, or
    after the queue itself.
    """
    return PATTERN_OF[queue].queue if queue in PATTERN_OF else queue


DOMAINS: Final = tuple(domain for name in SERVINGS for domain in domains_of(SERVINGS[name]) if domain.has_patterns)
HEARTBEAT: Final = heartbeat_of(1, {})
# The limit on the number of remembered ends is so low that the memory of ends is often full.
KEPT: Final = Announced(6, 100_000, tuple(map(share_of, SERVED)), DOMAINS)
PACKED: Final = {name: pack_tiers(domains_of(serving)) for name, serving in SERVINGS.items()}
ALWAYS: Final = Rule("return true", lambda _: True)


def wired(name: str, condition: Hours | Rule) -> QueueCondition:
    """Convert a condition of the model to the product's type `QueueCondition`."""
    if isinstance(condition, Rule):
        return QueueCondition(name, "lua", condition.text)
    return QueueCondition(name, "hours", text_of_hours(condition.known_until, condition.intervals))


@dataclass
class Worker:
    """The state that a worker has in its own process. `claims` have no outcome yet, and `pending` outcomes have not
    been confirmed by a reply. `tokens` were taken from doorbells and have not been reported yet. `quarantined` is the
    entry that the worker must run alone.
    """

    owner: str
    pool: str
    claims: list[Claim] = field(default_factory=list)
    pending: list[tuple[Claim, Outcome]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    quarantined: bytes = b""

    @property
    def serving(self) -> Serving:
        return SERVINGS[self.pool]

    @property
    def queues(self) -> list[str]:
        return [share.queue for tier in self.serving for share in tier]


@dataclass(frozen=True)
class Sent:
    """A call, and a function that makes the same call in the model and compares the replies. `owner` is the owner that
    makes the call, or on whose behalf it is made, or "" if there is no such owner.
    """

    command: ScriptCall[Any]
    check: Callable[[Any], None]
    owner: str = ""


class Machine(RuleBasedStateMachine):
    """One example of the model test, which runs in a new, empty namespace."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.fleet = TimedFleet(self.server, f"model-{next(_examples)}")
        self.model = GroupModel(LEASE_US, RUN_RECORD.decode(), SERVINGS.values())
        self.workers: dict[str, Worker] = {}
        self.zombies: list[Worker] = []
        self.named: list[str] = []
        self.reaped: set[str] = set()
        self.forgotten: set[str] = set()
        self.in_transit: list[Sent] = []
        self.readings: list[tuple[int, StoredSchedule]] = []
        self.is_full = False
        self.kept = KEPT
        self.without_token: set[str] = set()
        self.bare_is_unseen = False
        self.compared_to = "-"
        self.states = StateWatch()
        self.poller_knows: int | None = None
        self.ids = itertools.count()

    @initialize(has_events=st.booleans())
    def begin(self, has_events: bool) -> None:
        """Start with one worker, either with or without task events. Without events, turns use a shorter path for tasks
        that are simply done.
        """
        self.kept = KEPT if has_events else KEPT._replace(events=0)
        self.fleet.run(self.fleet.store.announce("node", HEARTBEAT, HOUR_MS, NAMES, self.kept))
        self.model.announce(self.now, NAMES, HOUR_MS * 1000, self.kept.ends, self.kept.events, shares=SERVED)
        self.define({FAST.condition: ALWAYS, FEW.condition: ALWAYS})
        for domain in DOMAINS:  # the first announcement of a domain rings the doorbells of its queues
            for share in domain.queues:
                self.fleet.silence(share.name)
        owner = self.fleet.register()
        self.named += self.model.register(self.now, ["node:1"])
        self.workers[owner] = Worker(owner, "all")

    def teardown(self) -> None:
        if self.is_full:
            self.fleet.redis.config_set("maxmemory", 0)
        sealed = self.fleet.redis.scan_iter(self.fleet.keys.sealed_ends("*"), count=10_000)
        assert len(list(sealed)) == self.fleet.redis.llen(self.fleet.keys.ends_sealed)
        self.fleet.forget()
        self.fleet.close()

    @property
    def now(self) -> int:
        """The Redis time at which the last script ran, in microseconds."""
        return self.fleet.clock_us

    def define(self, conditions: dict[str, Hours | Rule], delivery: str = ANSWERED) -> None:
        """Publish conditions, and check which queues are closed, as a master does."""

        def check(rows: tuple[ClosedQueue, ...]) -> None:
            told = {(row.queue, row.closed_age_us, row.closed_by, bool(row.error)) for row in rows}
            assert told == self.model.check_conditions(self.now, HOUR_MS * 1000, conditions)

        self.call(
            self.fleet.store.check_conditions(HOUR_MS, map(wired, conditions, conditions.values())), check, delivery
        )

    def picture(self) -> Picture:
        queues = [*QUEUES, *(share.queue for share in PATTERNS), UNKNOWN_QUEUE]
        return take_picture(self.fleet, queues, self.named, UNIQUE_KEYS, [domain.name for domain in DOMAINS])

    def move_clock(self, microseconds: int) -> None:
        """Move the clock forward or back, and delete the keys that would have expired by then."""
        self.fleet.clock_us += microseconds
        nonces, unique_keys, groups = self.model.keys_expire(self.now)
        keys = self.fleet.keys
        gone = [*map(keys.sent, nonces), *map(keys.unique, unique_keys), *map(keys.group, groups)]
        if gone:
            # The server's own clock is not moved, so none of these keys has expired yet. However, each key must have an
            # expiry. A TTL of -1 would mean that the key never expires.
            assert all(left != -1 and left <= HOLD_MS for left in map(self.fleet.redis.pttl, gone))
            self.fleet.redis.delete(*gone)

    def call(
        self, command: ScriptCall[T], check: Callable[[T], None], delivery: str = ANSWERED, owner: str = ""
    ) -> T | None:
        """Deliver a call in the given way and check the reply. Return the reply, or None if the sender receives
        none.
        """
        sent = Sent(command, check, owner)
        if delivery in {LATE, COPIED}:
            self.in_transit.append(sent)
        if delivery == LATE:
            return None
        if delivery == REPEATED:
            self.deliver(sent)
        answer: T | None = self.deliver(sent)
        return None if delivery == DROPPED else answer

    def deliver(self, sent: Sent) -> Any:
        """Deliver a call and check its reply. A full server refuses the calls that need memory, such as an enqueue. A
        refused call must have no effect.
        """
        if self.is_full and sent.command.script.name in REFUSED_WHEN_FULL:
            with pytest.raises(PushedBack) as refused:
                self.fleet.run(sent.command)
            assert refused.value.reason == "oom"
            return None
        if sent.owner in self.reaped:
            return self._deliver_for_the_reaped(sent)
        return self._deliver(sent)

    def _deliver(self, sent: Sent) -> Any:
        answer = self.fleet.run(sent.command)
        sent.check(answer)
        return answer

    def _deliver_for_the_reaped(self, sent: Sent) -> Any:
        """Check invariant I4: after an owner has been reaped, calls made by the owner or on its behalf have no
        effect.
        """
        before = self.picture().without_bells()
        answer = self._deliver(sent)
        assert self.picture().without_bells() == before
        return answer

    def pick(self, data: st.DataObject, things: Any) -> Any:
        return data.draw(st.sampled_from(sorted(things)))


def texts(raw: Any) -> list[str]:
    return [text.decode() for text in raw]


def texts_of(entries: Any) -> list[str]:
    return [entry.text.decode() for entry in entries]
