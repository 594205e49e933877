"""The typed store: one method a transition, each returning a `Command` and touching no socket.

A command carries its script, its arguments in wire form, and the parser of its reply. Whoever has a
connection runs it: the worker's own connection, the master's asyncio one, a client's pooled one.

Those that only look are in `rota.protocol.looks`, those by which people step in in `rota.protocol.operations`, those of
groups and chains in `rota.protocol.groups`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota.protocol import order, replies, views
from rota.protocol.classic import AdoptedClassic, ClassicSource, parse_adopted_classic
from rota.protocol.command import Command
from rota.protocol.condition import Condition
from rota.protocol.entry import CrashKind
from rota.protocol.groups import Dependents
from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.limits import DEFAULT_CRASH_LIMIT, DEFAULT_ENDED_KEEP, DEFAULT_FORGET_SECONDS, DEFAULT_LOSS_LIMIT
from rota.protocol.looks import Looks
from rota.protocol.operations import Operations
from rota.protocol.outcome import ARGS_PER_SETTLEMENT
from rota.protocol.tiers import NO_LIMITS, NO_TIERS, Domain, QueueShare, read_share, settings_of, settings_of_domain
from rota.protocol.wire import NOTHING, Arg, Packed, pack, text_of

BATCH = 500  # no script works on more things than this in one call
FRONT = "^"  # behind a due: for the head of its lane
PROGRESS_BATCH = 250  # a look and a write for each


class NewTask(NamedTuple):
    """A task as enqueue takes it.

    `due`: "" for at once, "+N" for N microseconds from now, "@N" for Unix time in microseconds; FRONT behind it for
    the head of its lane, where of one call the last stands first.
    `unique_key` "" for none; `hold_ms` 0 holds the key for the life of the task. `foreign`: the name of a task that
    is not declared in this process, or in its main module alone; not sent.
    """

    id: str
    queue: str
    body: bytes
    due: str = ""
    unique_key: str = ""
    hold_ms: int = 0
    foreign: str = ""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def how(self) -> str:
        """When it is due and what it holds, as one argument of a script: "" for nearly every task."""
        return f"{self.due} {self.hold_ms} {self.unique_key}" if self.due or self.unique_key else ""


class RateAsked(NamedTuple):
    """Whether the task of this entry may start by now. `name`: whose starts are counted. `latest_us`: when it may start
    at last by Redis time, None for whenever."""

    entry: bytes
    name: str
    interval_us: int
    burst: int
    latest_us: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The arguments of one turn: `held` ids claimed before and not settled, `tokens` queues whose
    doorbell this worker emptied since its last turn, `settlements` packed by `outcome.join_settlements`,
    `limits` of queues that have one of their own, packed by `pack_limits`. `plain`: of what has some, the
    `outcome.plain_lines` in place of its settlement.
    `held` None: all claims were answered, so there is nothing held to be told of. `picks`: how often a queue is chosen;
    with more than one each takes one entry, as so many turns would. `alone`: that of the answer before, the entry for
    which this worker empties its hands; then it names what it holds. `claim_by_us`: from this Redis time on nothing is
    claimed, and `more` is the answer; 0 for none, and where what is held is named."""

    limit: int
    held: Sequence[str] | None = ()
    tokens: Sequence[str] = ()
    settlements: Packed = NOTHING
    limits: Packed = NO_LIMITS
    plain: Sequence[bytes] = ()
    picks: int = 1
    alone: bytes = b""
    claim_by_us: int = 0


def _counted(settlements: Packed) -> Packed:
    return pack((settlements.count // ARGS_PER_SETTLEMENT,)) + settlements


FIRST_HELD = ""
"""In place of the id that ran, when nobody knows: the first entry that the owner still holds."""
ALL_HELD = "all held"
"""The same of an owner that runs several at once: all entries that it still holds. No id has a space."""


@dataclass(frozen=True, slots=True)
class Blame:
    """What a retired owner died of. `ran`: each id that ran, with the epitaph that it keeps, empty for one that is not
    to blame; none when nothing ran. FIRST_HELD is whichever stands first in its list, ALL_HELD are all in it.
    `loss_epitaph`: for all it held when a lease ran out. `crash`: what kind of crash it was; None when the task is not
    to blame."""

    ran: tuple[tuple[str, bytes], ...] = ()
    loss_epitaph: bytes = b"{}"
    crash_limit: int = DEFAULT_CRASH_LIMIT
    loss_limit: int = DEFAULT_LOSS_LIMIT
    crash: CrashKind | None = CrashKind.CRASH


@dataclass(frozen=True, slots=True)
class Attended:
    """What a consumer is told. `registered`: whether it still is; if not, the rest is empty. `cancelled`: texts
    of entries it holds that somebody asked to cancel. `shares`: how the fleet's masters serve its queues; plain ones
    where none does."""

    registered: bool
    cancelled: frozenset[bytes]
    shares: tuple[QueueShare, ...]


class Announced(NamedTuple):
    """What a master says besides that it lives: how many `ends` of tasks the fleet is to remember, about how many task
    `events` it wants kept (0: none), the `shares` of queues, which consumers go by, and those `domains` of its pools
    that have patterns: by these is found whom a queue of a pattern wakes."""

    ends: int = DEFAULT_ENDED_KEEP
    events: int = 0
    shares: tuple[QueueShare, ...] = ()
    domains: tuple[Domain, ...] = ()


NOTHING_SAID = Announced()


class Store(Looks, Operations, Dependents):
    """The transitions of one namespace."""

    # Producing

    def enqueue(self, nonce: str, tasks: Sequence[NewTask]) -> Command[list[replies.Enqueued]]:
        """Accept up to BATCH tasks. A call repeated with its nonce within 60 s changes nothing and returns the same."""
        args: list[Arg] = [nonce]
        for task in tasks:
            args += (task.id, task.queue, task.how, task.body)
        return self._command("enqueue", pack(args), replies.parse_enqueued)

    # Working

    def turn(self, owner: str, tiers: Packed, turn: Turn) -> Command[replies.TurnReply]:
        """Settle what ended and claim up to `turn.limit` entries of one queue, or as many as `turn.limits` says of it;
        with several `turn.picks` one entry of as many; `limit` 0 only settles."""
        args: list[Arg] = [owner, turn.limit, turn.picks, turn.alone]
        args += (-(turn.claim_by_us or 1),) if turn.held is None else (len(turn.held), *turn.held)
        args += (len(turn.tokens), *turn.tokens)
        plain = pack((len(turn.plain), b"".join(turn.plain)))
        packed = pack(args) + turn.limits + plain + _counted(turn.settlements) + tiers
        return self._command("turn", packed, replies.parse_turn)

    def explain(self, tiers: Packed, count: int, queue: str = "") -> Command[order.ClaimOrder]:
        """The next `count` claims, up to `order.MOST_CLAIMS`, of workers that serve these tiers; and how it is with
        their queues that have entries, and with `queue`."""
        turn = self.turn(order.NOBODY, tiers, Turn(limit=1))
        return self._command("explain", turn.args + pack((queue, count)), order.parse_order)

    def recall(self, owner: str, running: bytes, tiers: Packed, settlements: Packed = NOTHING) -> Command[int]:
        """Settle what a worker finished before the entry that it runs, and give back what it claimed behind that;
        returns how many entries were given back."""
        args = pack((owner, running)) + _counted(settlements) + tiers
        return self._command("recall", args, int)

    def begin(self, owner: str, entry: bytes) -> Command[bytes]:
        """Mark an entry whose task may be started once at most, before it is; returns the entry as it stands now, b""
        when the owner does not hold it: then nothing may be started."""
        return self._command("begin", pack((owner, entry)), bytes)

    def throttle(self, owner: str, asked: RateAsked) -> Command[replies.Throttled]:
        """Ask whether a task with a rate of its own may start; if not, it is delayed until its turn comes."""
        entry, name, interval_us, burst, latest_us = asked
        args = pack((owner, entry, name, interval_us, burst, "" if latest_us is None else latest_us))
        return self._command("throttle", args, replies.parse_throttled)

    def promote(self, limit: int = BATCH) -> Command[replies.Promoted]:
        """Move tasks that are due to their delayed lanes, in order of due."""
        return self._command("promote", pack((limit,)), replies.parse_promoted)

    # Owning

    def register(self, lease_ms: int, places: Sequence[str]) -> Command[tuple[str, ...]]:
        """Begin a life for each place (`node:slot`); returns the owners' names, `node:slot:life`."""
        return self._command("register", pack((lease_ms, *places)), replies.names_of)

    def renew(self, lease_ms: int, owners: Sequence[str]) -> Command[replies.Renewed]:
        """Extend the leases of up to 100 owners."""
        return self._command("renew", pack((lease_ms, *owners)), replies.parse_renewed)

    def carry_progress(self, told: Iterable[tuple[str, bytes, bytes]]) -> Command[int]:
        """Keep what up to PROGRESS_BATCH running tasks say of their progress: owner, entry and what it says of each;
        returns how many still run there."""
        return self._command("progress", pack(arg for each in told for arg in each), int)

    def retire_exited(
        self, owner: str, blame: Blame, settlements: Packed = NOTHING, tiers: Packed = NO_TIERS
    ) -> Command[replies.Retired]:
        """End an owner whose process is gone: settle what it had finished, give back the rest."""
        return self._retire(owner, "exit", blame.crash, blame, _counted(settlements) + tiers)

    def retire_expired(self, owner: str, blame: Blame) -> Command[replies.Retired]:
        """End the life of an owner whose lease ran out; `alive` when it has not, or grace is on."""
        return self._retire(owner, "expired", CrashKind.LOST, blame, _counted(NOTHING) + NO_TIERS)

    def _retire(
        self, owner: str, reason: str, crash: CrashKind | None, blame: Blame, rest: Packed
    ) -> Command[replies.Retired]:
        limits = blame.crash_limit, blame.loss_limit
        args: list[Arg] = [owner, reason, *limits, blame.loss_epitaph, crash or "", len(blame.ran)]
        for task_id, epitaph in blame.ran:
            args += (task_id, epitaph)
        return self._command("retire", pack(args) + rest, replies.parse_retired)

    def sweep(
        self, lease_ms: int, poller: str = "", forget_seconds: float = DEFAULT_FORGET_SECONDS
    ) -> Command[replies.Swept]:
        """The pollers' round: rescue unheard entries, keep the pulse, forget queues of patterns that are empty for so
        long; returns expired owners, what is due next, and whether `poller`, a name, is the one of the fleet that
        walks."""
        args = pack((lease_ms, poller, round(forget_seconds * 1000)))
        return self._command("sweep", args, replies.parse_swept)

    def adopt_scheduled(self, members: Sequence[bytes]) -> Command[replies.AdoptedScheduled]:
        """Adopt up to BATCH bare items of the delayed set."""
        return self._command("adopt_scheduled", pack(members), replies.parse_adopted_scheduled)

    def adopt_classic(self, poller: str, limit: int, sources: Sequence[ClassicSource]) -> Command[AdoptedClassic]:
        """Make tasks of up to `limit` items that are ready or due in these sources; `poller` is the caller's name."""
        args = (word for source in sources for word in source)
        return self._command("adopt_classic", pack((poller, limit, *args)), parse_adopted_classic)

    def list_queues(self, queues: Sequence[str]) -> Command[int]:
        """Note up to BATCH queues of which a lane was seen; returns how many were not known."""
        return self._command("list_queues", pack(queues), int)

    def adopt_orphans(self, lease_ms: int, owners: Sequence[str]) -> Command[int]:
        """Give owners of in-flight lists that nobody registered one lease; returns how many there were."""
        return self._command("orphans", pack((lease_ms, *owners)), int)

    def announce(
        self, node: str, heartbeat: bytes, ttl_ms: int, queues: Sequence[str], announced: Announced = NOTHING_SAID
    ) -> Command[replies.AnnounceReply]:
        """Publish a master's heartbeat, the queues it serves and the shares of queues, all good for `ttl_ms`, and what
        of the past is to be kept."""
        ends, events, shares, domains = announced
        args: list[Arg] = [node, heartbeat, ttl_ms, ends, events, settings_of(shares), len(domains)]
        for domain in domains:
            args += (domain.name, settings_of_domain(domain))
        return self._command("announce", pack([*args, *queues]), replies.parse_announce)

    def look_at_closed(
        self, ttl_ms: int, conditions: Iterable[Condition] = ()
    ) -> Command[tuple[views.ClosedQueue, ...]]:
        """Define conditions, good for `ttl_ms`, and keep since when queues are closed; returns those that are."""
        args: list[Arg] = [ttl_ms, *(word for each in conditions for word in each)]
        return self._command("conditions", pack(args), views.parse_closed)

    def attend(self, lease_ms: int, owner: str, queues: Sequence[str]) -> Command[Attended]:
        """Extend the lease of a consumer, and say which queues it serves."""

        def parse(raw: replies.Raw) -> Attended:
            registered, cancelled, settings = raw
            shares = tuple(map(read_share, queues, settings)) if registered else ()
            return Attended(bool(registered), frozenset(cancelled), shares)

        return self._command("attend", pack((lease_ms, owner, *queues)), parse)

    def open(self) -> Command[str]:
        """Record our protocol version in a fresh namespace; returns what stands there."""
        return self._command("open", pack((PROTOCOL_VERSION,)), text_of)
