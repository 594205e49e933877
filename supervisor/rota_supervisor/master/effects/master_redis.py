"""The master's Redis: its connections and what it notices of the server there; and its calls: owners are registered
before their worker exists, renewed while it lives, retired after it died.

A renewal writes into each worker's slot when it was *sent*: from then on counts how long it may hold tasks,
however late the answer came. What the connection notices of the server is reported too.
"""

import asyncio
import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from rota.child.child_life import boottime_seconds
from rota.child.slot_memory import Board, SlotMemory
from rota.child.slots import boottime_ns
from rota.durations import Backoff
from rota.protocol.command import Command, load_script
from rota.protocol.nodes import heartbeat_of
from rota.protocol.schedule_store import SCHEDULES_A_CALL, Declared, DeclareWord, RemoveWord, ScheduleStore
from rota.protocol.store import OWNERS_A_CALL, Store
from rota.protocol.views import ClosedQueue, Overview
from rota.server.address import address_of
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection, ConnectionWatch, Opener
from rota.server.connection import PARK_SECONDS
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import log, log_events
from rota.telemetry.log import OnceAMinute
from rota_supervisor.config import resolution
from rota_supervisor.layout import EXPORTER_SLOT
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import master_events as seen
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.task_watch import cancelled_in
from rota_supervisor.notice import read_pace
from rota_supervisor.server_check import eviction_policy_of, parse_info

# What a master runs.
_SCRIPTS: Final = (
    "announce",
    "conditions",
    "declare",
    "overview",
    "progress",
    "recall",
    "register",
    "remove_schedule",
    "renew",
    "retire",
)
_IDLE_LOOK_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 5.0  # with an answer
# The quickest of the last six is reported: on a busy machine some take long although the server is quick.
_ROUND_TRIPS: Final = 6


class RedisWatch:
    """The connection, and what is noticed there. `parked` is another, for calls that wait.

    `silent_since`: since when (CLOCK_BOOTTIME seconds) the server owes an answer that no later one has made up for;
    `inf` when it owes none. `works`: set while it answers.
    """

    def __init__(self, state: MasterState, happened: Callable[[seen.Event], None]) -> None:
        self._state = state
        self._happened = happened
        self.silent_since = math.inf
        self._asked_at = math.inf
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self.works = asyncio.Event()
        self.store = Store(state.config.namespace)
        for name in _SCRIPTS:  # later there may be no descriptor left, or another version's text in the file
            load_script(name)
        watch = ConnectionWatch(self._answered, self._failed, self._asked)
        address = address_of(resolution.server_settings(state.config))
        self.connection = AioConnection(Opener(address, "rota:master"), self._patience, watch)
        waiting = ConnectionWatch(down=self._parked_failed)
        self.parked = AioConnection(Opener(address, "rota:orders"), lambda: PARK_SECONDS + self._patience(), waiting)
        self._doubted = asyncio.Event()

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._state.config.lease.seconds / 4)

    def _asked(self) -> None:
        self._asked_at = boottime_seconds()
        self.silent_since = min(self.silent_since, self._asked_at)

    def _answered(self) -> None:
        self.silent_since = math.inf
        self.works.set()
        self._round_trips.append(boottime_seconds() - self._asked_at)
        if not self._state.redis_up:
            self._happened(seen.RedisAnswered())
        self._happened(seen.RoundTripSeen(round(min(self._round_trips), 6)))

    def _failed(self, error: ServerError) -> None:
        is_away = not isinstance(error, Refused)
        if not is_away:  # it answers, though not as we like
            self.silent_since = math.inf
        else:
            self.works.clear()
            self._round_trips.clear()
        self._happened(seen.RedisFailed(error.reason, str(error), is_away, error.is_reply))

    def _parked_failed(self, error: ServerError) -> None:
        if self._state.redis_up and not isinstance(error, Refused):
            self._doubted.set()

    # In these a ServerError needs no more: the watch above has reported it.

    async def ask_when_in_doubt(self) -> None:
        """Ask the server at once when the connection that waits has lost it, for ever: the next renewal may be seconds
        away, and until then it would count as there."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            with contextlib.suppress(ServerError):
                await self.connection.execute("TIME")

    async def watch_eviction(self) -> None:
        """Ask the server for its policy once a lease, for ever, and report when it is another."""
        known = ""
        while True:
            await asyncio.sleep(self._state.config.lease.seconds)
            if not self._state.redis_up:  # a server that takes no writes would answer this, and count as back
                continue
            try:
                info = await self.connection.execute("INFO", "memory")
            except ServerError:
                continue
            policy = eviction_policy_of(parse_info(info.decode(errors="replace")))
            if policy != known:
                known = policy
                self._happened(seen.EvictionPolicySeen(policy))

    async def leave_when_idle(self, leave: Callable[[], None]) -> None:
        """For `--burst`: call `leave` as soon as nothing is ready, running or overdue in the queues that are taken."""
        while not self._state.stop.is_asked:
            if await self._is_idle():
                leave()
                return
            await asyncio.sleep(_IDLE_LOOK_SECONDS)

    async def _is_idle(self) -> bool:
        if self._state.rollout.current is None:
            return False
        try:
            portion = await self.connection.run(self.store.overview(()))
            while portion.more and not self._has_work(portion):
                portion = await self.connection.run(self.store.overview((), portion.cursor))
        except ServerError:  # nothing is known, so nobody leaves
            return False
        return not self._has_work(portion)

    def _has_work(self, portion: Overview) -> bool:
        ours, label_of = self._state.taken_queues, self._state.label_of_queue
        return any(
            queue.ready or queue.inflight or queue.overdue for queue in portion.queues if label_of(queue.queue) in ours
        )


MILLISECONDS: Final = 1000
RECALL_AGAIN_SECONDS: Final = 0.2  # after a call that failed

_T = TypeVar("_T")
_DECLARED: Final = (DeclareWord.KEPT, DeclareWord.NEW, DeclareWord.CHANGED)
_REASONS: Final = {
    DeclareWord.OLDER: "another node declares something else under this name, and began to do so later",
    DeclareWord.CLIENT: "a client has put one of this name: remove that, or give this one another name",
    DeclareWord.REFUSED: "that is no name",
}


@dataclass(slots=True, eq=False, repr=False)
class RedisCalls:
    """Carries out in the background what concerns the owners of this master, whose name in Redis is `node`."""

    _connection: AioConnection
    _store: Store
    _node: str
    _memory: SlotMemory
    _background: Background
    _declaring: "ScheduleDeclarer"
    _happened: Callable[[seen.Event], None]
    _rarely: OnceAMinute = field(default_factory=OnceAMinute)

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Who carries out which effect."""
        start, keep = self._background.start, self._background.keep
        return {
            do.Register: lambda effect: keep(lambda: self._register(effect)),
            do.RenewLeases: lambda effect: start(self._renew(effect)),
            do.Retire: lambda effect: start(self._retire(effect)),
            do.Recall: lambda effect: start(self._recall(effect)),
        }

    # Owners

    async def _register(self, effect: do.Register) -> None:
        places = [f"{self._node}:{slot}" for slot, _ in effect.places]
        command = self._store.register(round(effect.lease_seconds * MILLISECONDS), places)
        owners, sent_ns = await self._through_outages("register", command)
        named = tuple((slot, nonce, owner) for (slot, nonce), owner in zip(effect.places, owners, strict=True))
        self._happened(seen.OwnersRegistered(named, effect.lease_seconds, sent_ns))

    async def _retire(self, effect: do.Retire) -> None:
        """Until it is answered, the slot of the dead worker stays taken."""
        command = self._store.retire_exited(effect.owner, effect.blame, effect.settlements, effect.tiers)
        retired, _ = await self._through_outages("retire", command)
        self._happened(seen.OwnerRetired(effect, retired))

    async def _through_outages(self, name: str, command: Command[_T]) -> tuple[_T, int]:
        """Repeat a call until it is answered; the answer, and when it was sent (ns)."""
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            sent_ns = boottime_ns()
            try:
                return await self._connection.run(command), sent_ns
            except ServerError as error:  # an outage is reported by the connection's watch
                if isinstance(error, Refused) and self._rarely.is_due(name):
                    log.logger().error(log_events.REDIS_REFUSED, call=name, error=str(error))
                await asyncio.sleep(backoff.next_seconds())

    # Leases

    async def _renew(self, effect: do.RenewLeases) -> None:
        """Each for the time that its worker knows, a hundred a call. What was renewed before a failure stays so."""
        lost: list[str] = []
        failed = True
        try:
            for lease_seconds, batch in batches_of(effect.held):
                lost += await self._renew_batch(lease_seconds, batch)
            await self._announce(effect)
            failed = False
        except ServerError:  # reported by the connection's watch
            pass
        finally:  # whatever failed: leases that nobody renews any more end every worker
            self._happened(seen.LeasesRenewed(tuple(lost), failed))

    async def _renew_batch(self, lease_seconds: float, batch: list[do.HeldLease]) -> tuple[str, ...]:
        sent_ns = boottime_ns()
        owners = [each.owner for each in batch]
        renewed = await self._connection.run(self._store.renew(round(lease_seconds * MILLISECONDS), owners))
        for each in batch:
            slot = self._memory.slot(each.slot)
            if each.owner not in renewed.lost and slot.nonce == each.nonce:
                slot.renewed_ns = sent_ns
        if renewed.cancelled:
            self._look_for(batch, renewed.cancelled)
        return tuple(renewed.lost)

    def _look_for(self, batch: list[do.HeldLease], cancelled: Collection[bytes]) -> None:
        """Report those of these entries that run. For most, an order has been there before."""
        for each in batch:
            for found in cancelled_in(each, self._memory.slot(each.slot), lambda task: task.entry in cancelled):
                self._happened(found)

    async def _announce(self, effect: do.RenewLeases) -> None:
        """Publish that this master lives, what it serves, its schedules, and what holds for the whole fleet; and look
        at what is closed."""
        pace = read_pace(Board(self._memory.slot(EXPORTER_SLOT).spare).read(), boottime_seconds())
        report = effect.report if pace is None else pace.added_to(effect.report)
        heartbeat = heartbeat_of(os.getpid(), effect.pools, report, effect.lease_seconds, effect.tasks)
        milliseconds = round(effect.lease_seconds * MILLISECONDS)
        call = self._store.announce(self._node, heartbeat, milliseconds, effect.queues, effect.announced)
        heard = await self._connection.run(call)
        await self._declaring.declare(effect.schedules, milliseconds)
        if effect.is_settled:
            await self._declaring.withdraw(effect.schedules, is_alone=heard.nodes == 1)
        may_be_closed = effect.conditions or heard.any_closed
        self._happened(seen.ClosedSeen(await self._look_at_closed(effect, milliseconds) if may_be_closed else ()))

    async def _look_at_closed(self, effect: do.RenewLeases, milliseconds: int) -> tuple[ClosedQueue, ...]:
        conditions = resolution.conditions_at(effect.conditions, await self._redis_now()) if effect.conditions else ()
        return await self._connection.run(self._store.look_at_closed(milliseconds, conditions))

    async def _redis_now(self) -> int:
        """Redis time in microseconds: hours are reckoned by it, so that no node's clock opens or closes anything."""
        seconds, microseconds = await self._connection.execute("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    # Claims

    async def _recall(self, effect: do.Recall) -> None:
        """Call until there is an answer, or the task has ended that held the others up."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.recalled = effect.task.number  # before it is sent
        call = self._store.recall(effect.owner, effect.task.entry, effect.tiers, effect.finished)
        while slot.nonce == child.nonce and slot.held_up_by == effect.task.number:
            try:
                recalled = await self._connection.run(call)
            except ServerError:  # reported by the connection's watch
                await asyncio.sleep(RECALL_AGAIN_SECONDS)
                continue
            if recalled:
                told = {"owner": effect.owner, "slot": child.slot, "task_id": effect.task.id, "tasks": recalled}
                log.logger().debug(log_events.CLAIM_RECALLED, **told)
            return


def batches_of(held: Iterable[do.HeldLease]) -> Iterator[tuple[float, list[do.HeldLease]]]:
    """The owners of each call, with their lease: after a reload workers of the generation before have the old one."""
    by_lease = sorted(held, key=attrgetter("lease_seconds"))
    for lease_seconds, of_lease in groupby(by_lease, key=attrgetter("lease_seconds")):
        while batch := list(islice(of_lease, OWNERS_A_CALL)):
            yield lease_seconds, batch


# Schedules
#
# One that is not declared any more is removed at once when no other node is there, as after a reload of a fleet of one
# node. Else a sweep finds out, two leases later, whether somebody declares it still.


class ScheduleDeclarer:
    """Over the connection of the master."""

    def __init__(self, connection: AioConnection, store: ScheduleStore) -> None:
        self._connection = connection
        self._store = store
        self._known: dict[str, DeclareWord] = {}
        self._rarely = OnceAMinute()
        self._stands: dict[str, Declared] = {}

    async def declare(self, schedules: Sequence[Declared], ttl_ms: int) -> None:
        """Declare all of these for so long. What the server refuses holds up no lease. Raises
        ServerError for the rest."""
        try:
            words = await self._declare(schedules, ttl_ms)
        except Refused as error:
            self._tell_refusal("declare", error)
            return
        for name, word in words.items():
            self._tell(name, word)
        self._stands |= {each.name: each for each in schedules if words[each.name] in _DECLARED}
        self._known = words

    async def withdraw(self, schedules: Collection[Declared], *, is_alone: bool) -> None:
        """Remove what this node declared before, and does not now, if it is alone. Raises ServerError."""
        kept = {each.name for each in schedules}
        for gone in [each for name, each in self._stands.items() if name not in kept]:
            if is_alone:
                await self._remove(gone)
            del self._stands[gone.name]

    async def _remove(self, gone: Declared) -> None:
        """Its declaration ends now; so it stays if a node that is just coming declares it in between. When an answer
        was lost it is declared anew for this instant, and removed."""
        try:
            [word] = await self._connection.run(self._store.declare(0, [gone]))
            if word not in _DECLARED:
                return
            if await self._connection.run(self._store.forget(gone.name, 0)) is RemoveWord.REMOVED:
                log.logger().info(log_events.SCHEDULE_REMOVED, schedule=gone.name)
        except Refused as error:  # a sweep will see to it
            self._tell_refusal("forget", error)

    def _tell_refusal(self, call: str, error: Refused) -> None:
        if self._rarely.is_due(call):
            log.logger().error(log_events.REDIS_REFUSED, call=call, error=str(error))

    async def _declare(self, schedules: Sequence[Declared], ttl_ms: int) -> dict[str, DeclareWord]:
        words: dict[str, DeclareWord] = {}
        for at in range(0, len(schedules), SCHEDULES_A_CALL):
            batch = schedules[at : at + SCHEDULES_A_CALL]
            answer = await self._connection.run(self._store.declare(ttl_ms, batch))
            words |= {each.name: word for each, word in zip(batch, answer, strict=True)}
        return words

    def _tell(self, name: str, word: DeclareWord) -> None:
        if word in (DeclareWord.NEW, DeclareWord.CHANGED):
            log.logger().info(log_events.SCHEDULE_DECLARED, schedule=name, is_new=word is DeclareWord.NEW)
        elif word in _REASONS and self._known.get(name) is not word:
            log.logger().warning(log_events.SCHEDULE_NOT_DECLARED, schedule=name, error=_REASONS[word])
