"""The next claims of each pool with an explanation in words, and the requests that read the data for them.

`explain` and its helpers yield the requests. All other functions are pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final

from rota.client.status import TaskStatus, status_of
from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.entry import Entry, Kind
from rota.protocol.nodes import Node
from rota.protocol.scans import complete_overview, find_task
from rota.protocol.scripts import Steps, execute
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import STATES, State
from rota.protocol.tiers import VIRTUAL_UNIT
from rota.protocol.turns import DEFAULT_CLAIMS, MOST_CLAIMS, ClaimOrder, EntryInOrder, QueueInOrder
from rota.protocol.views import Overview, QueueState
from rota.protocol.wire import Packed

DELAYED_LANE: Final = "delayed"
READY_LANE: Final = "ready"


@dataclass(frozen=True, slots=True)
class ExpectedClaim:
    """One of the next claims: a task that a worker is expected to claim."""

    number: int  # The position among the next claims, from 1.
    id: str  # The task's id, or "" if the task gets an id only when it is claimed.
    queue: str
    name: str  # The task's name, or "" if it cannot be read from the body.
    tier: int  # The highest tier is 1.
    weight: float
    lane: str  # `delayed` or `ready`.
    due_at: datetime
    attempt: int
    crashes: int
    losses: int
    running: int  # How many tasks of the queue will be running after this claim. Counted only if the queue has a `cap`.
    cap: int  # 0 for no cap.
    why: str  # Why this task is claimed at this point.


class Outlook(StrEnum):
    """The state of a queue after the explained claims.

    In the last five of these states, no further task of the queue can be claimed.
    """

    EMPTY = "empty"  # No ready task of the queue is left.
    AMONG = "among"  # The queue is open, and some of its tasks are among the claims.
    BEHIND = "behind"  # The queue is open, but other tasks come first.
    PAUSED = "paused"  # A client has paused the queue.
    CONDITION = "condition"  # The queue's condition keeps it closed.
    CAP = "cap"  # As many tasks of the queue are running as its cap permits.
    RATE = "rate"  # The queue's rate limit does not permit a start yet.
    UNSERVED = "unserved"  # The pool does not serve the queue.


@dataclass(frozen=True, slots=True)
class QueueOutlook:
    """The state of a queue in one pool, and why its tasks will or will not be claimed next."""

    queue: str
    outlook: Outlook
    tier: int  # The highest tier is 1; 0 means that the pool does not serve the queue.
    weight: float
    ready: int  # The number of ready tasks.
    claims: int  # How many of the ready tasks are among the explained claims.
    running: int  # How many tasks of the queue will be running after the explained claims.
    cap: int  # 0 for no cap.
    # When the rate or the condition lets the next task start. None if neither delays the task, or if the time is not
    # known.
    opens_at: datetime | None
    why: str  # Why no more tasks of the queue are among the claims, and when more could be claimed.


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """The next claims of the workers of a pool."""

    pool: str
    nodes: tuple[str, ...]  # The nodes of the pool.
    claims: tuple[ExpectedClaim, ...]
    queues: tuple[QueueOutlook, ...]  # The queues of the pool that have a ready task.
    is_whole: bool  # False if some of the requested claims are missing, because finding them would be too much work.

    def of_queue(self, queue: str) -> QueueOutlook:
        """Return the state of a queue, which must either have a ready task or be named in the request."""
        return next((each for each in self.queues if each.queue == queue), unserved_by(self.pool, queue))

    def of_task(self, task_id: str) -> ExpectedClaim | None:
        """Return the expected claim of a task, or None if the task is not among the claims."""
        return next((each for each in self.claims if each.id == task_id), None)


def outlook_of(pool: str, nodes: Sequence[str], order: ClaimOrder, closed_since: Mapping[str, datetime]) -> PoolOutlook:
    """Return the next claims of a pool, with the reasons in words.

    `closed_since` maps each closed queue to the time at which it was closed, if that time is known.
    """
    taken = Counter(claim.entry.queue for claim in order.claims)
    queues = tuple(_queue_outlook(each, order, taken[each.queue], closed_since) for each in order.queues)
    return PoolOutlook(pool, tuple(nodes), tuple(_claims(order)), queues, order.is_whole)


def unserved_by(pool: str, queue: str) -> QueueOutlook:
    """Return the state of a queue that a pool does not serve."""
    return QueueOutlook(queue, Outlook.UNSERVED, 0, 0.0, 0, 0, 0, 0, None, f"pool {pool} does not serve it")


# Claims


def _claims(order: ClaimOrder) -> Iterator[ExpectedClaim]:
    known = {each.queue: each for each in order.queues}
    so_far: Counter[str] = Counter()
    for number, claim in enumerate(order.claims, 1):
        queue = known[claim.entry.queue]
        yield _claim(number, claim, queue, order, so_far[queue.queue])
        so_far[queue.queue] += 1


def _claim(number: int, claim: EntryInOrder, queue: QueueInOrder, order: ClaimOrder, before: int) -> ExpectedClaim:
    entry = claim.entry
    running = max(0, queue.running) + before + 1
    return ExpectedClaim(
        number=number,
        id="" if entry.id.startswith(f"adopted-{order.now_us}-") else entry.id,
        queue=entry.queue,
        name=claim.name,
        tier=queue.tier,
        weight=_weight(queue),
        lane=READY_LANE if entry.kind is Kind.IMMEDIATE else DELAYED_LANE,
        due_at=utc_datetime(entry.due_us),
        attempt=entry.attempt,
        crashes=entry.crashes,
        losses=entry.losses,
        running=running,
        cap=queue.cap,
        why=", ".join(_reasons(entry, queue, order, before)),
    )


def _reasons(entry: Entry, queue: QueueInOrder, order: ClaimOrder, before: int) -> Iterator[str]:
    if queue.tier > 1:
        yield f"tier {queue.tier}: {_tiers_above(queue, order)}"
    yield _rotation_reason(queue, order, before)
    if entry.kind is not Kind.IMMEDIATE:
        yield "the delayed lane is served before the ready lane"
    if queue.cap:
        yield f"task {max(0, queue.running) + before + 1} of at most {queue.cap} that run at once"
    if queue.interval_us:
        yield "its rate permits it"
    if entry.crashes or entry.losses:
        yield "claimed alone, because of a recorded crash or loss"


def _tiers_above(queue: QueueInOrder, order: ClaimOrder) -> str:
    above = [each for each in order.queues if each.tier < queue.tier and each.left and not each.is_open]
    named = ", ".join(each.queue for each in above[:_MAX_NAMED])
    more = f" and {len(above) - _MAX_NAMED} more" if len(above) > _MAX_NAMED else ""
    return f"all queues in the tiers above are closed ({named}{more})" if above else "no queue above has a ready task"


def _rotation_reason(queue: QueueInOrder, order: ClaimOrder, before: int) -> str:
    if sum(each.tier == queue.tier for each in order.queues) == 1:
        return "no other queue of its tier has a ready task"
    if queue.time is None and not before:
        return "queue never served before"
    return f"queue served least for its weight of {_weight(queue):g}"


def _weight(queue: QueueInOrder) -> float:
    return round(VIRTUAL_UNIT / queue.cost, 3)


# Queues


_MAX_NAMED: Final = 3


def _queue_outlook(
    queue: QueueInOrder, order: ClaimOrder, claims: int, closed_since: Mapping[str, datetime]
) -> QueueOutlook:
    running = max(0, queue.running) + claims
    opens_us = max(queue.opens_us, order.now_us + queue.wait_us if queue.wait_us else 0)
    since = closed_since.get(queue.queue)
    if shut := dict(_shut_by(queue, running, since)) if _is_shut(queue, claims) else {}:
        outlook = next(iter(shut))
        why = "; ".join(shut.values())
    else:
        outlook, why = _unshut(queue, order, claims)
    fields = queue.queue, outlook, queue.tier, _weight(queue), queue.entries, claims, running, queue.cap
    return QueueOutlook(*fields, _time(opens_us), why)


def _is_shut(queue: QueueInOrder, claims: int) -> bool:
    """Whether no further task of this queue can be claimed after the next claims, `claims` of which are its tasks.

    If no ready task of the queue is left, this is whether the next task that becomes ready would have to wait, because
    the queue is paused or its condition keeps it closed.
    """
    return not queue.is_open if queue.left else (queue.paused or queue.closed) and not claims


def _shut_by(queue: QueueInOrder, running: int, closed_since: datetime | None) -> Iterator[tuple[Outlook, str]]:
    """Yield each reason why a worker cannot claim from this queue, as an Outlook and a text.

    The script `explain` has already decided that a worker cannot, so this function only finds the reasons.
    """
    since = f" since {_as_text(closed_since)}" if closed_since else ""
    if queue.paused:
        yield Outlook.PAUSED, f"it is paused{since}, until `rota queue resume {queue.queue}`"
    if queue.closed:
        opens = f", until {_as_text(utc_datetime(queue.opens_us))}" if queue.opens_us else ""
        fault = f": {queue.fault}" if queue.fault else ""
        yield Outlook.CONDITION, f"its condition {queue.condition} keeps it closed{since}{opens}{fault}"
    if queue.cap and running >= queue.cap:
        yield Outlook.CAP, f"its cap is reached until a task ends: {running} of {queue.cap} tasks are running"
    if queue.wait_us:
        yield Outlook.RATE, f"its rate permits the next start in {queue.wait_us / MICROSECONDS:.3f} s"


def _time(unix_us: int) -> datetime | None:
    return utc_datetime(unix_us) if unix_us else None


def _as_text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _unshut(queue: QueueInOrder, order: ClaimOrder, claims: int) -> tuple[Outlook, str]:
    if not queue.left:
        return Outlook.EMPTY, "all its ready tasks are among these claims" if claims else "none of its tasks is ready"
    if claims:
        return Outlook.AMONG, "its other tasks come after these claims"
    return Outlook.BEHIND, f"other tasks come first: {_who_is_first(queue, order)}"


def _who_is_first(queue: QueueInOrder, order: ClaimOrder) -> str:
    above = sum(each.left for each in order.queues if each.tier < queue.tier and each.is_open)
    if above:
        return f"{above} more {'is' if above == 1 else 'are'} ready in the tiers above"
    return f"other queues of tier {queue.tier} have been served less for their weights"


# Explanations of a single queue or a single task

NO_POOLS: Final = "no running master has a pool, so no worker claims tasks"


def about_queue(queue: str, pools: Sequence[PoolOutlook]) -> Iterator[str]:
    """Yield a line for each pool, which describes the state of the queue in that pool."""
    for pool in pools:
        found = pool.of_queue(queue)
        among = f"{found.claims} of {found.ready} ready tasks are among the next {len(pool.claims)} claims; "
        yield f"queue {queue} in pool {pool.pool}: {among if found.ready else ''}{found.why}"


def about_shut(queue: str, pools: Sequence[PoolOutlook]) -> Iterator[str]:
    """Yield a line for each pool in which the queue is closed, so that its tasks will have to wait even when they are
    ready."""
    shut = (Outlook.PAUSED, Outlook.CONDITION, Outlook.UNSERVED)
    yield from about_queue(queue, [pool for pool in pools if pool.of_queue(queue).outlook in shut])


def about_ready(task: TaskStatus, pools: Sequence[PoolOutlook], before: int | None) -> Iterator[str]:
    """Yield lines that explain when a task that is ready will be claimed."""
    claims = [(pool.pool, claim) for pool in pools if (claim := pool.of_task(task.id))]
    for pool, claim in claims:
        yield f"it is claim {claim.number} of pool {pool}: {claim.why}"
    if not claims:
        first = f"more than {_MAX_SEARCHED:,}" if before is None else str(before)
        yield f"it is ready, but is not among these claims: {first} tasks of its queue come before it"
        yield from about_queue(task.queue, pools)


def about_scheduled(task: TaskStatus, at: datetime) -> str:
    """Return an explanation of when a scheduled task can be claimed."""
    return f"it is scheduled and becomes ready {_when(task.due_at, at)}, ahead of the ready lane of queue {task.queue}"


def about_delayed(state: QueueState, due_at: datetime | None, at: datetime) -> str:
    """Return an explanation of when a queue that has only scheduled tasks will have a ready task."""
    return f"scheduled tasks: {state.scheduled}; the next one becomes ready {_when(due_at, at)}"


def about_gone(task: TaskStatus) -> str:
    """Return a text that explains why a task will not be claimed, for example because it has ended."""
    return STATES[task.state].not_claimed.format(id=task.id, owner=task.owner, state=task.state, why=task.why)


def _when(due_at: datetime | None, at: datetime) -> str:
    if due_at is None:
        return "later than the next 500 scheduled tasks of the fleet"
    left = (due_at - at).total_seconds()
    return f"at {_as_text(due_at)}, in {left:.1f} s" if left > 0 else "now: it is due"


# The maximum number of tasks of a lane that are searched to find the position of one task.
_MAX_SEARCHED: Final = 10_000


@dataclass(frozen=True, slots=True)
class WantedClaims:
    """A request for the next `count` claims of each pool, or of one pool.

    If a queue or a task is named, the explanation also states why that queue or task is not among the claims.
    """

    count: int = DEFAULT_CLAIMS
    queue: str = ""
    task_id: str = ""
    pool: str = ""

    def __post_init__(self) -> None:
        """Check the request.

        Raises TypeError or ValueError if the count is not valid, or if both a queue and a task are named.
        """
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise TypeError(f"the number of claims must be a whole number, got {self.count!r}")
        if not 1 <= self.count <= MOST_CLAIMS:
            raise ValueError(f"the number of claims must be from 1 to {MOST_CLAIMS}, got {self.count!r}")
        if self.queue and self.task_id:
            raise ValueError("name either a queue or a task: the queue of a task is explained with the task")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The next claims of each pool, provided that no task is enqueued, becomes due or ends in the meantime."""

    at: datetime  # The time at which the claims were computed.
    pools: tuple[PoolOutlook, ...]  # Empty if no master is running.
    unserved: tuple[str, ...]  # Queues with ready tasks that no pool serves. Empty if a queue or a task is explained.
    queue: str = ""
    task: TaskStatus | None = None  # The status of the task that is explained.
    about: str = ""  # The lines that explain the queue or the task, or "" if neither is named.


class UnknownPool(ValueError):
    """Raised if no master has a pool with this name."""


def explain(store: Store, wanted: WantedClaims) -> Steps[Explanation]:
    """Return an explanation of the next claims. Raises UnknownPool."""
    found_task = (yield from find_task(store, wanted.task_id)) if wanted.task_id else None
    task = status_of(wanted.task_id, found_task) if found_task else None
    queue = task.queue if task else wanted.queue
    overview = yield from execute(store.overview((queue,) if queue else ()))
    if not queue:
        overview = yield from complete_overview(store, overview)
    pools = yield from _outlooks(store, replace(wanted, queue=queue, task_id=""), overview)
    unserved = tuple(each.queue for each in overview.queues if each.ready and not each.served and not queue)
    found = Explanation(utc_datetime(overview.now_us), pools, unserved, queue, task)
    if not queue:
        return replace(found, about=about_gone(task)) if task else found
    [state] = [each for each in overview.queues if each.queue == queue]
    return replace(found, about="\n".join((yield from _about(store, found, state))))


def _outlooks(store: Store, wanted: WantedClaims, overview: Overview) -> Steps[tuple[PoolOutlook, ...]]:
    closed = [each for each in overview.queues if each.closed_age_us]
    closed_since = {each.queue: utc_datetime(overview.now_us - each.closed_age_us) for each in closed}
    found = []
    for (pool, tiers), nodes in _pools((yield from execute(store.nodes())), wanted.pool).items():
        order = yield from execute(store.explain(tiers, wanted.count, wanted.queue))
        found.append(outlook_of(pool, nodes, order, closed_since))
    return tuple(found)


def _pools(nodes: list[Node], wanted: str) -> dict[tuple[str, Packed], list[str]]:
    """Return the names of the nodes that run each pool, by the pool's name and tiers. Pools with the same name but
    different tiers are listed separately. With `wanted`, only pools with that name are returned."""
    found: dict[tuple[str, Packed], list[str]] = {}
    for node in sorted(filter(attrgetter("is_alive"), nodes), key=attrgetter("name")):
        for pool, tiers in sorted(node.pools.items()):
            found.setdefault((pool, tiers), []).append(node.name)
    if not wanted:
        return found
    names = ", ".join(sorted({pool for pool, _ in found}))
    if wanted not in names.split(", "):
        raise UnknownPool(f'no running master has a pool "{wanted}": {f"the pools are {names}" if names else NO_POOLS}')
    return {key: its_nodes for key, its_nodes in found.items() if key[0] == wanted}


def _about(store: Store, found: Explanation, state: QueueState) -> Steps[list[str]]:
    """Return the lines of text about the queue or the task that the request names. For a task, they also describe its
    queue."""
    task = found.task
    lines = [] if found.pools else [f"pools: {NO_POOLS}"]
    if task and task.state not in (State.READY, State.SCHEDULED):
        return [*lines, about_gone(task)]
    if task and task.state is State.READY:
        lines += about_ready(task, found.pools, (yield from _count_before(store, task)))
    elif task:
        lines += [about_scheduled(task, found.at), *about_shut(found.queue, found.pools)]
    elif found.pools and not state.served:
        return [f"queue {found.queue}: no pool of a running fleet serves it; add it to `tiers` in rota.toml"]
    else:
        lines += about_queue(found.queue, found.pools)
        if state.scheduled and not state.ready:
            lines.append(about_delayed(state, (yield from _next_due(store, state.queue)), found.at))
    if not state.served:
        lines.append("no running master serves this queue: is the fleet running, and is the queue listed in `tiers`?")
    return lines


def _count_before(store: Store, task: TaskStatus) -> Steps[int | None]:
    """Return how many tasks of the queue are served before this task, or None if the task is not among the first
    10,000."""
    before = 0
    offset = 0
    while offset < _MAX_SEARCHED:
        page = yield from execute(store.peek(State.READY, task.queue, "", offset, BATCH))
        for each in page.tasks:
            if each.id == task.id:
                return before
            before += 1
        if page.next_offset is None:
            return None
        offset = page.next_offset
    return None


def _next_due(store: Store, queue: str) -> Steps[datetime | None]:
    """Return when the next scheduled task of a queue is due, or None if the queue has none among the fleet's next
    500."""
    page = yield from execute(store.peek(State.SCHEDULED, queue, "", 0, BATCH))
    tasks = page.tasks
    return utc_datetime(tasks[0].due_us) if tasks else None
