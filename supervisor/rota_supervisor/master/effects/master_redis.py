"""The master's connections to Redis, the check that the server replies, and the master's calls. An owner is registered
before its worker exists, renewed while the worker lives, and reaped after the worker has died.

A renewal writes the time at which the call was *sent* into each worker's slot. The worker may hold tasks for the lease
duration from that time, regardless of when the reply arrives.
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

from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import boottime_ns
from rota.durations import Backoff
from rota.protocol.nodes import heartbeat_of
from rota.protocol.schedule_store import SCHEDULES_A_CALL, DeclaredSchedule, DeclareStatus, RemoveStatus, ScheduleStore
from rota.protocol.scripts import ScriptCall, load_script
from rota.protocol.signatures import SigningSettings, schedule_kind
from rota.protocol.store import OWNERS_A_CALL, Store
from rota.protocol.views import ClosedQueue, Overview
from rota.server.address import address_of
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection, ConnectionWatch, Opener
from rota.server.connection import PARK_SECONDS
from rota.server.server_errors import Refused, ServerError
from rota.tasks.keyring import Keyring, keyring_of
from rota.telemetry import log, log_events
from rota.telemetry.log import OnceAMinute
from rota_supervisor.config import resolution
from rota_supervisor.layout import EXPORTER_SLOT
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import master_events
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.task_watch import cancelled_in
from rota_supervisor.master_snapshot import read_throughput
from rota_supervisor.server_check import eviction_policy_of, parse_info

# The scripts that a master calls
_SCRIPTS: Final = (
    "announce",
    "conditions",
    "declare",
    "overview",
    "progress",
    "return_prefetched",
    "register",
    "remove_schedule",
    "renew",
    "reap",
    "scaling",
)
_IDLE_CHECK_SECONDS: Final = 0.1
_MAX_REPLY_SECONDS: Final = 5.0  # the longest wait for a reply
# The fastest of the last six round trips is reported, because on a busy machine some round trips are slow even if the
# server is fast.
_ROUND_TRIPS: Final = 6


class RedisWatch:
    """The master's connection to Redis. It also notices whether the server replies."""

    def __init__(self, state: MasterState, happened: Callable[[master_events.Event], None]) -> None:
        self._state = state
        self._happened = happened
        # The time at which the first command since the last reply was sent, in seconds of CLOCK_BOOTTIME. It is `inf`
        # if every command has a reply.
        self.silent_since = math.inf
        self._sent_at = math.inf
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self.works = asyncio.Event()  # set while the server replies
        self.store = Store(state.config.namespace)
        # Load the scripts now. Later, no descriptor may be left to open the files, or another version may have replaced
        # them.
        for name in _SCRIPTS:
            load_script(name)
        watch = ConnectionWatch(self._replied, self._failed, self._command_sent)
        address = address_of(resolution.server_settings(state.config))
        self.connection = AioConnection(Opener(address, "rota:master"), self._reply_timeout, watch)
        waiting = ConnectionWatch(down=self._parked_failed)
        self.parked = AioConnection(  # used for blocking calls
            Opener(address, "rota:orders"), lambda: PARK_SECONDS + self._reply_timeout(), waiting
        )
        self._doubted = asyncio.Event()

    def _reply_timeout(self) -> float:
        # The timeout is short enough that a lease survives one lost reply. A reload can make leases shorter, so the
        # timeout is computed from the current lease.
        return min(_MAX_REPLY_SECONDS, self._state.config.lease.seconds / 4)

    def _command_sent(self) -> None:
        self._sent_at = boottime_seconds()
        self.silent_since = min(self.silent_since, self._sent_at)

    def _replied(self) -> None:
        self.silent_since = math.inf
        self.works.set()
        self._round_trips.append(boottime_seconds() - self._sent_at)
        if not self._state.redis_up:
            self._happened(master_events.RedisReplied())
        self._happened(master_events.RoundTripSeen(round(min(self._round_trips), 6)))

    def _failed(self, error: ServerError) -> None:
        is_away = not isinstance(error, Refused)
        if not is_away:  # The server has replied, although with an error.
            self.silent_since = math.inf
        else:
            self.works.clear()
            self._round_trips.clear()
        self._happened(master_events.RedisFailed(error.reason, str(error), is_away, error.is_reply))

    def _parked_failed(self, error: ServerError) -> None:
        if self._state.redis_up and not isinstance(error, Refused):
            self._doubted.set()

    # The methods below ignore ServerError, because `_failed` has already reported the error.

    async def probe_when_in_doubt(self) -> None:
        """Call the server at once whenever the connection for blocking calls breaks. Runs forever.

        Otherwise the master would consider the server available until the next renewal, which may be seconds away.
        """
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            with contextlib.suppress(ServerError):
                await self.connection.execute("TIME")

    async def watch_eviction(self) -> None:
        """Read the server's eviction policy once per lease duration, and report any change. Runs forever."""
        known = ""
        while True:
            await asyncio.sleep(self._state.config.lease.seconds)
            if not self._state.redis_up:
                # A server that refuses writes replies to INFO, but must not count as available.
                continue
            try:
                info = await self.connection.execute("INFO", "memory")
            except ServerError:
                continue
            policy = eviction_policy_of(parse_info(info.decode(errors="replace")))
            if policy != known:
                known = policy
                self._happened(master_events.EvictionPolicySeen(policy))

    async def leave_when_idle(self, leave: Callable[[], None]) -> None:
        """Call `leave` once no task is ready, running or overdue in this node's queues (for `--burst`)."""
        while not self._state.stop.is_requested:
            if await self._is_idle():
                leave()
                return
            await asyncio.sleep(_IDLE_CHECK_SECONDS)

    async def _is_idle(self) -> bool:
        if self._state.rollout.current is None:
            return False
        try:
            chunk = await self.connection.run(self.store.overview(()))
            while chunk.more and not self._has_work(chunk):
                chunk = await self.connection.run(self.store.overview((), chunk.cursor))
        except ServerError:  # If the server does not reply, there may still be tasks, so the fleet keeps running.
            return False
        return not self._has_work(chunk)

    def _has_work(self, chunk: Overview) -> bool:
        ours = self._state.taken_queues
        label_of = self._state.label_of_queue
        return any(
            queue.ready or queue.inflight or queue.overdue for queue in chunk.queues if label_of(queue.queue) in ours
        )


MILLISECONDS: Final = 1000
RETURN_AGAIN_SECONDS: Final = 0.2  # the pause before a failed call is repeated

_T = TypeVar("_T")
_DECLARED: Final = (DeclareStatus.KEPT, DeclareStatus.NEW, DeclareStatus.CHANGED)
_REASONS: Final = {
    DeclareStatus.OLDER: "another node has declared a different schedule with this name more recently",
    DeclareStatus.CLIENT: "a client has already created a schedule with this name: remove that schedule, or rename "
    "this one",
    DeclareStatus.REFUSED: "the name of the schedule is not valid",
}


@dataclass(slots=True, eq=False, repr=False)
class RedisCalls:
    """The Redis calls about the owners of this node. The calls run in the background. `node`: the name of this node in
    Redis."""

    _connection: AioConnection
    _store: Store
    _node: str
    _memory: SlotMemory
    _background: Background
    _declaring: "ScheduleDeclarer"
    _happened: Callable[[master_events.Event], None]
    _rarely: OnceAMinute = field(default_factory=OnceAMinute)

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """The function that performs each kind of effect."""
        start = self._background.start
        keep = self._background.keep
        return {
            do.Register: lambda effect: keep(lambda: self._register(effect)),
            do.RenewLeases: lambda effect: start(self._renew(effect)),
            do.ReapOwner: lambda effect: start(self._reap_owner(effect)),
            do.ReturnPrefetched: lambda effect: start(self._return_prefetched(effect)),
        }

    # Owners

    async def _register(self, effect: do.Register) -> None:
        names = [f"{self._node}:{slot}" for slot, _ in effect.slots]
        command = self._store.register(round(effect.lease_seconds * MILLISECONDS), names)
        owners, sent_ns = await self._through_outages("register", command)
        named = tuple((slot, nonce, owner) for (slot, nonce), owner in zip(effect.slots, owners, strict=True))
        self._happened(master_events.OwnersRegistered(named, effect.lease_seconds, sent_ns))

    async def _reap_owner(self, effect: do.ReapOwner) -> None:
        """Reap an owner. The dead worker's slot is not reused until Redis has replied."""
        command = self._store.reap_exited(effect.owner, effect.blame, effect.settlements, effect.tiers)
        reply, _ = await self._through_outages("reap", command)
        self._happened(master_events.OwnerReaped(effect, reply))

    async def _through_outages(self, name: str, command: ScriptCall[_T]) -> tuple[_T, int]:
        """Repeat a call until Redis accepts it. Returns the reply, and the time in nanoseconds at which the successful
        call was sent."""
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            sent_ns = boottime_ns()
            try:
                return await self._connection.run(command), sent_ns
            except ServerError as error:  # `_failed` reports outages.
                if isinstance(error, Refused) and self._rarely.is_due(name):
                    log.logger().error(log_events.REDIS_REFUSED, call=name, error=str(error))
                await asyncio.sleep(backoff.next_seconds())

    # Leases

    async def _renew(self, effect: do.RenewLeases) -> None:
        """Renew each lease for the duration with which its worker was started, a hundred leases per call. If a call
        fails, leases that earlier calls have renewed stay renewed.
        """
        lost: list[str] = []
        failed = True
        try:
            for lease_seconds, batch in batches_of(effect.held):
                lost += await self._renew_batch(lease_seconds, batch)
            await self._announce(effect)
            failed = False
        except ServerError:  # `_failed` has already reported it.
            pass
        finally:  # Report the end even after a failure: only then is the next renewal scheduled.
            self._happened(master_events.LeasesRenewed(tuple(lost), failed))

    async def _renew_batch(self, lease_seconds: float, batch: list[do.HeldLease]) -> tuple[str, ...]:
        sent_ns = boottime_ns()
        owners = [each.owner for each in batch]
        renewed = await self._connection.run(self._store.renew(round(lease_seconds * MILLISECONDS), owners))
        for each in batch:
            slot = self._memory.slot(each.slot)
            if each.owner not in renewed.lost and slot.nonce == each.nonce:
                slot.renewed_ns = sent_ns
        if renewed.cancelled:
            self._report_cancelled(batch, renewed.cancelled)
        return tuple(renewed.lost)

    def _report_cancelled(self, batch: list[do.HeldLease], cancelled: Collection[bytes]) -> None:
        """Report to the core which of the cancelled tasks are still running. Usually the core already knows them,
        because an order to cancel has arrived before."""
        for each in batch:
            for found in cancelled_in(each, self._memory.slot(each.slot), lambda task: task.entry in cancelled):
                self._happened(found)

    async def _announce(self, effect: do.RenewLeases) -> None:
        """Publish this master, its queues, its schedules and the fleet's settings. Also read which queues are
        closed."""
        throughput = read_throughput(SharedText(self._memory.slot(EXPORTER_SLOT).spare).read(), boottime_seconds())
        report = effect.report if throughput is None else throughput.added_to(effect.report)
        heartbeat = heartbeat_of(os.getpid(), effect.pools, report, effect.lease_seconds, effect.tasks)
        milliseconds = round(effect.lease_seconds * MILLISECONDS)
        call = self._store.announce(self._node, heartbeat, milliseconds, effect.queues, effect.announced)
        announced = await self._connection.run(call)
        schedules = self._declaring.signed(effect.schedules, effect.signing)
        await self._declaring.declare(schedules, milliseconds)
        if effect.is_settled:
            await self._declaring.withdraw(schedules, is_only_node=announced.nodes == 1)
        may_be_closed = effect.conditions or announced.any_closed
        self._happened(master_events.ClosedSeen(await self._read_closed(effect, milliseconds) if may_be_closed else ()))

    async def _read_closed(self, effect: do.RenewLeases, milliseconds: int) -> tuple[ClosedQueue, ...]:
        conditions = resolution.conditions_at(effect.conditions, await self._redis_now()) if effect.conditions else ()
        return await self._connection.run(self._store.check_conditions(milliseconds, conditions))

    async def _redis_now(self) -> int:
        """Return the time of Redis in microseconds. Opening hours are compared with this time, so that they do not
        depend on the clock of a node."""
        seconds, microseconds = await self._connection.execute("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    # Claims

    async def _return_prefetched(self, effect: do.ReturnPrefetched) -> None:
        """Return prefetched tasks to their lanes. The call is repeated until Redis replies or the long-running task
        ends."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.prefetch_returned = effect.task.number  # The worker must see this before the call is sent.
        call = self._store.return_prefetched(effect.owner, effect.task.entry, effect.tiers, effect.finished)
        while slot.nonce == child.nonce and slot.held_up_by == effect.task.number:
            try:
                returned = await self._connection.run(call)
            except ServerError:  # `_failed` has already reported it.
                await asyncio.sleep(RETURN_AGAIN_SECONDS)
                continue
            if returned:
                fields = {"owner": effect.owner, "slot": child.slot, "task_id": effect.task.id, "tasks": returned}
                log.logger().debug(log_events.CLAIM_RETURNED, **fields)
            return


def batches_of(held: Iterable[do.HeldLease]) -> Iterator[tuple[float, list[do.HeldLease]]]:
    """Yield the leases in batches, one for each call, together with the lease duration of the batch. All leases of a
    batch have the same duration. Durations can differ, because workers that were started before a reload keep the
    earlier duration."""
    by_lease = sorted(held, key=attrgetter("lease_seconds"))
    for lease_seconds, of_lease in groupby(by_lease, key=attrgetter("lease_seconds")):
        while batch := list(islice(of_lease, OWNERS_A_CALL)):
            yield lease_seconds, batch


# Schedules

# A schedule that is no longer declared is removed at once if no other node is alive, for example after a reload of a
# fleet with one node. If there are other nodes, a sweep checks two leases later whether one of them still declares the
# schedule.


class ScheduleDeclarer:
    """The part of the master that declares this node's schedules in Redis."""

    def __init__(self, connection: AioConnection, store: ScheduleStore) -> None:
        self._connection = connection
        self._store = store
        self._known: dict[str, DeclareStatus] = {}
        self._rarely = OnceAMinute()
        self._declared: dict[str, DeclaredSchedule] = {}
        self._signing = SigningSettings()
        self._keyring: Keyring | None = None

    def signed(self, schedules: Sequence[DeclaredSchedule], signing: SigningSettings) -> Sequence[DeclaredSchedule]:
        """Return the schedules as they are declared in Redis: with signatures if this node has a key for signing, and
        otherwise unchanged. If a reload has set another key and its file cannot be read, the previous key is used."""
        if signing != self._signing:
            try:
                self._keyring = keyring_of(signing)
                self._signing = signing
            except ValueError as error:
                self._log_refusal("declare", error)
        keyring = self._keyring
        if keyring is None:
            return schedules
        return [each._replace(text=keyring.sign(each.text, schedule_kind(each.name))) for each in schedules]

    async def declare(self, schedules: Sequence[DeclaredSchedule], ttl_ms: int) -> None:
        """Declare these schedules for the next `ttl_ms` milliseconds.

        If the server refuses the call, this is logged and does not make the renewal of leases fail. Raises ServerError
        for other failures.
        """
        try:
            statuses = await self._declare(schedules, ttl_ms)
        except Refused as error:
            self._log_refusal("declare", error)
            return
        for name, status in statuses.items():
            self._log(name, status)
        self._declared |= {each.name: each for each in schedules if statuses[each.name] in _DECLARED}
        self._known = statuses

    async def withdraw(self, schedules: Collection[DeclaredSchedule], *, is_only_node: bool) -> None:
        """Forget the schedules that are no longer declared. If no other node is alive, also remove them from Redis.

        Raises ServerError.
        """
        kept = {each.name for each in schedules}
        for gone in [each for name, each in self._declared.items() if name not in kept]:
            if is_only_node:
                await self._remove(gone)
            del self._declared[gone.name]

    async def _remove(self, gone: DeclaredSchedule) -> None:
        """Remove a schedule that this node declared.

        Only the declaration of this node is removed, so the schedule stays if a new node declares it in the meantime.
        The removal takes two calls: the first ends the declaration, and the second removes the schedule. If the reply
        to the second call is lost, both are repeated, so the schedule exists again for a moment.
        """
        try:
            [status] = await self._connection.run(self._store.declare(0, [gone]))
            if status not in _DECLARED:
                return
            if await self._connection.run(self._store.forget(gone.name, 0)) is RemoveStatus.REMOVED:
                log.logger().info(log_events.SCHEDULE_REMOVED, schedule=gone.name)
        except Refused as error:  # A sweep removes the schedule later.
            self._log_refusal("forget", error)

    def _log_refusal(self, call: str, error: Exception) -> None:
        if self._rarely.is_due(call):
            log.logger().error(log_events.REDIS_REFUSED, call=call, error=str(error))

    async def _declare(self, schedules: Sequence[DeclaredSchedule], ttl_ms: int) -> dict[str, DeclareStatus]:
        statuses: dict[str, DeclareStatus] = {}
        for at in range(0, len(schedules), SCHEDULES_A_CALL):
            batch = schedules[at : at + SCHEDULES_A_CALL]
            reply = await self._connection.run(self._store.declare(ttl_ms, batch))
            statuses |= {each.name: status for each, status in zip(batch, reply, strict=True)}
        return statuses

    def _log(self, name: str, status: DeclareStatus) -> None:
        if status in (DeclareStatus.NEW, DeclareStatus.CHANGED):
            log.logger().info(log_events.SCHEDULE_DECLARED, schedule=name, is_new=status is DeclareStatus.NEW)
        elif status in _REASONS and self._known.get(name) is not status:
            log.logger().warning(log_events.SCHEDULE_NOT_DECLARED, schedule=name, error=_REASONS[status])
