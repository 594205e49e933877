"""A driver for protocol tests: it runs transitions on a real server, and inspects the data with plain commands."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import redis

from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.outcome import (
    DONE,
    Outcome,
    RunRecord,
    Settlement,
    join_settlements,
    pack_settlement,
    plain_lines,
    ran_by,
    run_record_of,
)
from rota.protocol.replies import Promoted, Reaped
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Blame, Store
from rota.protocol.tiers import NO_LIMITS, NO_TIERS, Domain, QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Claim, Turn, TurnReply
from rota.protocol.wire import Packed
from rota.server.address import parse_address
from rota.server.connection import Connection
from rota_supervisor.acl_roles import AclRole
from support.acl_users import as_user
from support.plain_commands import PlainCommands
from support.servers import Server

T = TypeVar("T")

LEASE_MS = 20_000
SECOND_US = 1_000_000
# If a throttled task may start within this time, the worker keeps the task and waits (MOST_WAIT in throttle.lua).
HELD_US = 5_000
RUN = RunRecord(1_700_000_000_000_000, 2_500_000, 77, "work")
RUN_RECORD = run_record_of(RUN.start_us, RUN.run_us, ran_by(RUN.pid, RUN.name))
"""The record of a run, as a worker sends it."""


def pack_settlements(settlements: Iterable[Settlement]) -> Packed:
    """Return settlements in the format of a worker's turn."""
    return join_settlements([pack_settlement(settlement) for settlement in settlements])


def turn_of(
    settlements: Iterable[Settlement],
    limit: int,
    held: Sequence[str] | None = (),
    tokens: Sequence[str] = (),
    limits: Packed = NO_LIMITS,
) -> Turn:
    """Return the turn with which a worker reports these settlements."""
    settlements = list(settlements)
    others = pack_settlements(settlement for settlement in settlements if not plain_lines(settlement))
    return Turn(limit, held, tokens, others, limits, [*filter(None, map(plain_lines, settlements))])


def one_tier(*queues: str) -> Packed:
    """Return a single tier with these queues, which have equal weights, in the format of a turn."""
    return tiers([QueueShare(queue) for queue in queues])


def tiers(*domains: Sequence[QueueShare]) -> Packed:
    """Return these tiers in the format of a turn, the highest tier first. A tier is given as the shares of its queues,
    which have their weights and limits.
    """
    return pack_tiers(_domain(shares) for shares in domains)


def _domain(shares: Sequence[QueueShare]) -> Domain:
    return domain_of(shares)


def body_of(task_id: str, queue: str = "q") -> bytes:
    """Return a task body in the short form: id, queue, the task name `work`, and no arguments."""
    return f'["{task_id}","{queue}","work",[]]'.encode()


class Fleet:
    """A client that makes one call of the protocol at a time. `redis` inspects the data, and `keys` returns the names
    of keys. `picks` is the number of times that each turn of `served` chooses a queue.
    """

    picks = 1

    def __init__(self, server: Server, namespace: str) -> None:
        self.store = Store(namespace)
        self.keys = self.store.keys
        self.redis = redis.Redis(unix_socket_path=server.socket_path, decode_responses=True)
        self._connection = Connection(parse_address(as_user(f"unix://{server.socket_path}", AclRole.OPERATOR)))
        self._plain = PlainCommands(server.socket_path)
        self._nonces = 0

    def close(self) -> None:
        self._connection.close()
        self._plain.close()
        self.redis.close()

    def run(self, command: ScriptCall[T]) -> T:
        return self._connection.run(command)

    # Enqueues

    def enqueue(self, *tasks: NewTask) -> list[Enqueued]:
        self._nonces += 1
        return self.run(self.store.enqueue(f"{self.keys.namespace}-{self._nonces}", tasks))

    def push(self, *ids: str, queue: str = "q", due: str = "") -> None:
        """Enqueue plain tasks with these ids."""
        self.enqueue(*(NewTask(task_id, queue, body_of(task_id, queue), due) for task_id in ids))

    # Claims, and the ends of owners

    def register(self, place: str = "node:1", lease_ms: int = LEASE_MS) -> str:
        return self.run(self.store.register(lease_ms, [place]))[0]

    def turn(
        self,
        owner: str,
        serving: Packed,
        *settlements: tuple[Claim, Outcome],
        limit: int = 1,
        held: Sequence[str] = (),
        tokens: Sequence[str] = (),
        run: bytes = RUN_RECORD,
    ) -> TurnReply:
        settled = [Settlement(claim.entry, outcome, run) for claim, outcome in settlements]
        return self.run(self.store.turn(owner, serving, turn_of(settled, limit, held, tokens)))

    def claim(self, owner: str, serving: Packed, limit: int = 1) -> list[str]:
        """Run a turn, and return the ids that it claims."""
        return [claim.entry.id for claim in self.turn(owner, serving, limit=limit).claims]

    def served(self, serving: Packed, times: int, *owners: str) -> list[str]:
        """Claim up to `times` tasks, and return their queues in order. The owners claim one after the other, and settle
        each task at once.
        """
        order: list[str] = []
        for owner in itertools.cycle(owners):
            turn = Turn(1, picks=min(self.picks, times - len(order)))
            claims = self.run(self.store.turn(owner, serving, turn)).claims
            self.turn(owner, serving, *((claim, DONE) for claim in claims), limit=0)
            order += [claim.entry.queue for claim in claims]
            if not claims or len(order) == times:
                break
        return order

    def claimed(self, *ids: str) -> tuple[str, Claim]:
        """Push these tasks, and let a new owner claim the first. Return the owner and the claim."""
        self.push(*ids)
        owner = self.register()
        return owner, self.turn(owner, one_tier("q")).claims[0]

    def promote(self, limit: int = 500) -> Promoted:
        return self.run(self.store.promote(limit))

    def exit(
        self, owner: str, ran: Sequence[str] = (), serving: Packed = NO_TIERS, blame: Blame | None = None
    ) -> Reaped:
        """Reap an owner whose process has ended. The tasks `ran` were running, so a crash is counted for each of
        them.
        """
        blame = blame or Blame(ran=tuple((task_id, b'{"reason":"crash"}') for task_id in ran))
        return self.run(self.store.reap_exited(owner, blame, tiers=serving))

    def expire_lease(self, owner: str) -> None:
        """Change the stored times so that an owner's lease has expired. The last sweep is set to now, because after a
        pause of the sweeps no owner would be reported as expired for the length of a lease.
        """
        self.redis.zadd(self.keys.owners, {owner: 1})
        self.redis.hset(self.keys.pulse, mapping={"grace_until": 0, "at": self.now_us()})

    def reap(self, owner: str, ran: Sequence[str], *finished: tuple[Claim, Outcome]) -> Reaped:
        """Reap an owner whose process has ended, and which left the outcomes `finished` in its slot. A crash is counted
        for each of the tasks `ran` that has no such outcome.
        """
        settled = pack_settlements(Settlement(claim.entry, outcome, RUN_RECORD) for claim, outcome in finished)
        blame = Blame(ran=tuple((task_id, b'{"reason":"crash"}') for task_id in ran))
        return self.run(self.store.reap_exited(owner, blame, settled))

    # Inspection

    def look(self, commands: Iterable[tuple[str | int, ...]]) -> list[Any]:
        """Send plain Redis commands in one exchange, and return their replies."""
        return self._plain.run(commands)

    def commands(self) -> int:
        """Return the number of commands that the server has run, including the calls of scripts."""
        return sum(each["calls"] for each in self.redis.info("commandstats").values())

    def now_us(self) -> int:
        seconds, microseconds = self.redis.time()
        return int(seconds) * SECOND_US + int(microseconds)

    def lane(self, queue: str = "q") -> list[str]:
        """Return the ids in a queue's ready lane, head first."""
        return self._ids(self.keys.ready_lane(queue))

    def delayed_lane(self, queue: str = "q") -> list[str]:
        return self._ids(self.keys.delayed_lane(queue))

    def inflight(self, owner: str) -> list[str]:
        return self._ids(self.keys.inflight(owner))

    def inflight_entries(self, owner: str) -> list[bytes]:
        """Return the texts of the entries that the owner holds."""
        return [str(text).encode() for text in self.redis.lrange(self.keys.inflight(owner), 0, -1)]

    def _ids(self, key: str) -> list[str]:
        return [str(text).split(" ")[0] for text in self.redis.lrange(key, 0, -1)]

    def score(self, key: str, member: str) -> float:
        """Return a member's score. Raises AssertionError if the member is missing."""
        score = self.redis.zscore(key, member)
        assert score is not None
        return float(score)

    def bell(self, queue: str = "q") -> int:
        return int(self.redis.llen(self.keys.doorbell(queue)))

    def silence(self, queue: str = "q") -> None:
        """Remove the token from a doorbell, as a BLPOP does."""
        self.redis.delete(self.keys.doorbell(queue))

    def snapshot(self) -> dict[str, str]:
        """Return every key of the namespace with a digest of its value. If two snapshots are equal, nothing has
        changed.
        """
        found = sorted(self.redis.scan_iter(match=f"{{{self.keys.namespace}}}:*", count=1000))
        return {key: self.raw("DEBUG", "DIGEST-VALUE", key)[0] for key in found}

    def raw(self, *words: str | float | bytes) -> Any:
        """Run any Redis command."""
        return self.redis.execute_command(*words)  # type: ignore[no-untyped-call]  # untyped in redis-py
