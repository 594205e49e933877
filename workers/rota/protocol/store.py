"""The typed store, with one method for each transition. A method returns a `ScriptCall` and does no I/O.

A call carries its script, its arguments in wire form, and the parser of its reply. The caller runs it on its own
connection, for example a worker's connection, the master's asyncio connection, or one from a client's pool.

The scripts that only read are in `rota.protocol.views`, the transitions of groups and chains in `rota.protocol.groups`,
and the transitions of schedules in `rota.protocol.schedule_store`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.protocol.entry import CrashKind
from rota.protocol.groups import Dependents
from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.new_tasks import Enqueued, NewTask, parse_enqueued
from rota.protocol.nodes import NOTHING_ANNOUNCED, Announced, AnnounceReply, parse_announce
from rota.protocol.outcome import ARGS_PER_SETTLEMENT
from rota.protocol.replies import (
    AdoptedLegacy,
    AdoptedScheduled,
    Attended,
    Bounded,
    CancelStatus,
    LegacySource,
    Promoted,
    Reaped,
    Renewed,
    RestoreStatus,
    Swept,
    parse_adopted_legacy,
    parse_adopted_scheduled,
    parse_bounded,
    parse_cancel,
    parse_promoted,
    parse_reaped,
    parse_renewed,
    parse_restored,
    parse_swept,
)
from rota.protocol.scripts import Raw, ScriptCall, Transitions, names_of
from rota.protocol.tiers import (
    DEFAULT_CRASH_LIMIT,
    DEFAULT_FORGET_SECONDS,
    DEFAULT_LOSS_LIMIT,
    NO_TIERS,
    QueueCondition,
    read_share,
    settings_of,
    settings_of_domain,
)
from rota.protocol.turns import (
    EXPLAIN_OWNER,
    ClaimOrder,
    RateRequest,
    Throttled,
    Turn,
    TurnReply,
    parse_order,
    parse_throttled,
    parse_turn,
)
from rota.protocol.views import ClosedQueue, Queries, parse_closed
from rota.protocol.wire import NOTHING, Arg, Packed, pack, text_of

BATCH = 500  # the maximum number of items that a script processes in one call


PROGRESS_BATCH = 250  # most reports in one call; smaller than BATCH, because each report takes a read and a write
OWNERS_A_CALL = 100  # the maximum number of owners in one call that renews leases or checks for orphans


def _counted(settlements: Packed) -> Packed:
    return pack((settlements.count // ARGS_PER_SETTLEMENT,)) + settlements


FIRST_HELD = ""
"""Used instead of the running task's id if that id is not known. It means the first entry that the owner still
holds."""
ALL_HELD = "all held"
"""Used instead of a task's id for an owner that runs several tasks at once. It means all entries that the owner still
holds. It cannot be confused with an id, because no id contains a space."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The tasks that are blamed for the death of a reaped owner, and how this counts against them: as a crash or as a
    loss, with which attempt record, and with which limits."""

    # The id of each task that was running, with the attempt record to store for it. The record is empty if the task is
    # not to blame. FIRST_HELD stands for the first entry in the owner's list, and ALL_HELD for all entries in it. The
    # tuple is empty if no task was running.
    ran: tuple[tuple[str, bytes], ...] = ()
    loss_record: bytes = b"{}"  # the attempt record to store for each entry that the owner held when its lease expired
    crash_limit: int = DEFAULT_CRASH_LIMIT  # number of crashes after which a task is dead
    loss_limit: int = DEFAULT_LOSS_LIMIT  # number of losses after which a task is dead
    crash: CrashKind | None = CrashKind.CRASH  # the kind of crash; None if the task is not to blame


class Operations(Transitions):
    """The transitions that people trigger on the tasks and queues of one namespace."""

    def cancel(self, task_id: str, kill_after_ms: int | None = None) -> ScriptCall[CancelStatus]:
        """Cancel a task. A waiting task ends at once. If the task is running, its worker is notified, and if the task
        is still running after `kill_after_ms`, the worker's process is killed."""
        kill_after = "-" if kill_after_ms is None else kill_after_ms
        return self._call("cancel", pack((task_id, kill_after)), parse_cancel)

    def pause(self, queue: str) -> ScriptCall[int]:
        """Stop claims from a queue. Returns 1 if the queue was not paused before."""
        return self._call("pause", pack((queue,)), int)

    def resume(self, queue: str) -> ScriptCall[int]:
        """Permit claims from a queue again and ring its doorbell. Returns 1 if the queue was paused."""
        return self._call("resume", pack((queue,)), int)

    def purge(self, queue: str) -> ScriptCall[Bounded]:
        """End up to BATCH ready tasks of a queue. To purge the whole queue, repeat this while the reply has `more`."""
        return self._call("purge", pack((queue,)), parse_bounded)

    def purge_dead(self, ids: Sequence[str]) -> ScriptCall[int]:
        """Delete tasks that are dead, given by up to BATCH ids. Returns how many were deleted; a task that is not dead
        is not changed."""
        return self._call("purge_dead", pack(ids), int)

    def revive(self, ids: Sequence[str]) -> ScriptCall[int]:
        """Put tasks that are dead, given by up to BATCH ids, back in their lanes, with their failures reset. Returns
        how many were put back; a task that is not dead is not changed."""
        return self._call("revive", pack(ids), int)

    def trim(self, max_age_us: int, max_count: int) -> ScriptCall[Bounded]:
        """Delete up to BATCH dead tasks: those that died more than `max_age_us` ago, and then the oldest ones until at
        most `max_count` are left."""
        return self._call("trim", pack((max_age_us, max_count)), parse_bounded)

    def heal(self, cursor: str) -> ScriptCall[str]:
        """Count the running, delayed and dead tasks again, a chunk in each call, and correct the counters. Begin with
        cursor "0" and repeat with the cursor of each reply until it is "0" again."""
        return self._call("heal", pack((cursor,)), text_of)

    def restore(self, ids: Sequence[str]) -> ScriptCall[list[RestoreStatus]]:
        """Put unplaced tasks back in their lanes. `ids` has up to BATCH live tasks that a scan found in no lane, list
        or set. The reply states for each task whether it was put back."""
        return self._call("restore", pack(ids), parse_restored)


class Store(Queries, Operations, Dependents):
    """The transitions of one namespace."""

    # Producing

    def enqueue(self, nonce: str, tasks: Sequence[NewTask]) -> ScriptCall[list[Enqueued]]:
        """Accept up to BATCH tasks. If the call is repeated with the same nonce within 60 s, it changes nothing and
        returns the same reply."""
        args: list[Arg] = [nonce]
        for task in tasks:
            args += (task.id, task.queue, task.how, task.body)
        return self._call("enqueue", pack(args), parse_enqueued)

    # Working

    def turn(self, owner: str, tiers: Packed, turn: Turn) -> ScriptCall[TurnReply]:
        """Settle the tasks that have ended, then choose a queue and claim entries from it: up to `turn.limit`, or up to
        the number in `turn.limits` if that has one for this queue. If `turn.picks` is above 1, a queue is chosen that
        many times instead, and one entry is claimed each time. If the limit is 0, no entries are claimed."""
        held = turn.held or ()
        args: list[Arg] = [
            owner,
            turn.limit,
            turn.picks,
            turn.quarantined,
            int(turn.held is not None),
            turn.claim_by_us,
        ]
        args += (len(held), *held, len(turn.tokens), *turn.tokens)
        plain = pack((len(turn.plain), b"".join(turn.plain)))
        packed = pack(args) + turn.limits + plain + _counted(turn.settlements) + tiers
        return self._call("turn", packed, parse_turn)

    def explain(self, tiers: Packed, count: int, queue: str = "") -> ScriptCall[ClaimOrder]:
        """Return which tasks workers with these tiers would claim next, up to `count` and at most `MOST_CLAIMS`. The
        reply also contains the state of `queue` and of every queue in these tiers that has entries."""
        turn = self.turn(EXPLAIN_OWNER, tiers, Turn(limit=1))
        return self._call("explain", turn.args + pack((queue, count)), parse_order)

    def return_prefetched(
        self, owner: str, running: bytes, tiers: Packed, settlements: Packed = NOTHING
    ) -> ScriptCall[int]:
        """Settle the tasks that a worker has finished, and give back the entries that it claimed after the entry
        `running`. Returns how many entries were given back."""
        args = pack((owner, running)) + _counted(settlements) + tiers
        return self._call("return_prefetched", args, int)

    def mark_started(self, owner: str, entry: bytes) -> ScriptCall[bytes]:
        """Mark the entry of a task that may be started at most once, just before the start. Returns the changed entry,
        or b"" if the owner does not hold the entry. In that case the task must not be started."""
        return self._call("mark_started", pack((owner, entry)), bytes)

    def throttle(self, owner: str, request: RateRequest) -> ScriptCall[Throttled]:
        """Request the start of a task that has a rate limit. If the limit does not permit the start yet, this delays
        the task until the limit permits it."""
        entry, name, interval_us, burst, latest_us = request
        args = pack((owner, entry, name, interval_us, burst, "" if latest_us is None else latest_us))
        return self._call("throttle", args, parse_throttled)

    def promote(self, limit: int = BATCH) -> ScriptCall[Promoted]:
        """Move up to `limit` tasks that are due to the delayed lanes of their queues, in the order of their due
        times."""
        return self._call("promote", pack((limit,)), parse_promoted)

    # Owning

    def register(self, lease_ms: int, slots: Sequence[str]) -> ScriptCall[tuple[str, ...]]:
        """Register an owner for each slot, given as `node:slot`. Returns the owners' names, `node:slot:nonce`."""
        return self._call("register", pack((lease_ms, *slots)), names_of)

    def renew(self, lease_ms: int, owners: Sequence[str]) -> ScriptCall[Renewed]:
        """Extend the leases of up to 100 owners."""
        return self._call("renew", pack((lease_ms, *owners)), parse_renewed)

    def store_progress(self, reports: Iterable[tuple[str, bytes, bytes]]) -> ScriptCall[int]:
        """Store the progress of up to PROGRESS_BATCH running tasks. Each report is the owner, the entry and the
        progress. Returns how many of these tasks are still held by their owners."""
        return self._call("progress", pack(arg for each in reports for arg in each), int)

    def reap_exited(
        self, owner: str, blame: Blame, settlements: Packed = NOTHING, tiers: Packed = NO_TIERS
    ) -> ScriptCall[Reaped]:
        """Reap an owner whose process has exited: settle the tasks that it had finished, and give back the rest."""
        return self._reap(owner, "exit", blame.crash, blame, _counted(settlements) + tiers)

    def reap_expired(self, owner: str, blame: Blame) -> ScriptCall[Reaped]:
        """Reap an owner whose lease has expired. If the lease has not expired, or if a grace period is in force,
        nothing is changed, and the reply is `alive`."""
        return self._reap(owner, "expired", CrashKind.LOST, blame, _counted(NOTHING) + NO_TIERS)

    def _reap(self, owner: str, reason: str, crash: CrashKind | None, blame: Blame, rest: Packed) -> ScriptCall[Reaped]:
        limits = blame.crash_limit, blame.loss_limit
        args: list[Arg] = [owner, reason, *limits, blame.loss_record, crash or "", len(blame.ran)]
        for task_id, record in blame.ran:
            args += (task_id, record)
        return self._call("reap", pack(args) + rest, parse_reaped)

    def sweep(
        self, lease_ms: int, poller: str = "", forget_seconds: float = DEFAULT_FORGET_SECONDS
    ) -> ScriptCall[Swept]:
        """Do the regular work of the pollers: ring the doorbells of queues whose entries wait without a token, record
        that a poller is running, and forget queues of patterns that have been empty for `forget_seconds`.

        The reply has the owners whose leases have expired, what is due next, and whether the poller named `poller` does
        the fleet's scans.
        """
        args = pack((lease_ms, poller, round(forget_seconds * 1000)))
        return self._call("sweep", args, parse_swept)

    def adopt_scheduled(self, members: Sequence[bytes]) -> ScriptCall[AdoptedScheduled]:
        """Make tasks from up to BATCH items that other programs have pushed to the delayed set."""
        return self._call("adopt_scheduled", pack(members), parse_adopted_scheduled)

    def adopt_legacy(self, poller: str, limit: int, sources: Sequence[LegacySource]) -> ScriptCall[AdoptedLegacy]:
        """Make tasks from up to `limit` items of these legacy sources that are ready or due. `poller` is the name of
        the calling poller."""
        args = (arg for source in sources for arg in source)
        return self._call("adopt_legacy", pack((poller, limit, *args)), parse_adopted_legacy)

    def list_queues(self, queues: Sequence[str]) -> ScriptCall[int]:
        """Add up to BATCH queues, whose lanes a scan has found, to the known queues. Returns how many of them were
        new."""
        return self._call("list_queues", pack(queues), int)

    def adopt_orphans(self, lease_ms: int, owners: Sequence[str]) -> ScriptCall[int]:
        """Give a lease to owners that have in-flight lists but are not registered, so that they will be reaped when
        this lease expires. Returns how many such owners there were."""
        return self._call("orphans", pack((lease_ms, *owners)), int)

    def announce(
        self, node: str, heartbeat: bytes, ttl_ms: int, queues: Sequence[str], announced: Announced = NOTHING_ANNOUNCED
    ) -> ScriptCall[AnnounceReply]:
        """Publish a master's heartbeat, the queues that its node serves, and how the node serves them. All of these
        expire after `ttl_ms`. Also publish how many ended tasks and task events are to be kept."""
        ends, events, shares, domains = announced
        args: list[Arg] = [node, heartbeat, ttl_ms, ends, events, settings_of(shares), len(domains)]
        for domain in domains:
            args += (domain.name, settings_of_domain(domain))
        return self._call("announce", pack([*args, *queues]), parse_announce)

    def check_conditions(
        self, ttl_ms: int, conditions: Iterable[QueueCondition] = ()
    ) -> ScriptCall[tuple[ClosedQueue, ...]]:
        """Set the conditions, which expire after `ttl_ms`, and record when queues were closed. Returns the closed
        queues."""
        args: list[Arg] = [ttl_ms, *(arg for each in conditions for arg in each)]
        return self._call("conditions", pack(args), parse_closed)

    def attend(self, lease_ms: int, owner: str, queues: Sequence[str]) -> ScriptCall[Attended]:
        """Extend the lease of a consumer and record the queues that it serves. Returns how the fleet serves these
        queues."""

        def parse(raw: Raw) -> Attended:
            registered, cancelled, settings = raw
            shares = tuple(map(read_share, queues, settings)) if registered else ()
            return Attended(bool(registered), frozenset(cancelled), shares)

        return self._call("attend", pack((lease_ms, owner, *queues)), parse)

    def open(self) -> ScriptCall[str]:
        """Return the protocol version of the namespace. If the namespace is new, this first records Rota's own version
        in it."""
        return self._call("open", pack((PROTOCOL_VERSION,)), text_of)
