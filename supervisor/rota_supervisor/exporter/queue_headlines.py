"""The headlines about queues, one line each, as rules over the contents of `/status.json`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rota.durations import in_words
from rota_supervisor.layout import Role

BAD: Final = "bad"  # the problem makes tasks late or lost, or soon will
WARN: Final = "warn"  # a person should check the fleet

RECENT_SECONDS: Final = 300.0
LEAST_FAILED: Final = 3
MOST_FAILED_SHARE: Final = 0.1
OVERDUE_SECONDS: Final = 10.0
STALLED_SECONDS: Final = 60.0
STALLED_STEPS_SECONDS: Final = 120.0  # a queue is stalled if no task has been claimed from it for this long
_NEVER_LATE: Final[Mapping[str, Any]] = {"worst_seconds": 0.0, "too_many": False, "now": False}
_NO_HISTORY: Final[Mapping[str, tuple[Any, ...]]] = {"started": (), "done": (), "p99": ()}
_NO_ATTEMPTS: Final = {"done": 0, "failed": 0}

Row = Mapping[str, Any]


class Headline(NamedTuple):
    """One line about the state of the fleet."""

    level: str  # bad, warn or good
    text: str
    where: str  # `redis`, `fleet`, `log`, `queues/NAME`, `pools/NAME`, `nodes/NAME`, or `workers/SLOT` for any process


def unserved(status: Row) -> Iterator[Headline]:
    for queue, state in _queues(status):
        waiting = state["ready"] + state["overdue"]
        if waiting and not state["served"] and not _closed(state):
            yield _of(queue, BAD, f": no worker serves it, {_waiting(state)}")


def closed_queues(status: Row) -> Iterator[Headline]:
    for queue, state in _queues(status):
        by = state["closed_by"]
        age = in_words(state["closed_age_seconds"])
        if state["condition_error"]:
            yield _of(queue, BAD, f": its condition {by} fails: {state['condition_error']}")
        elif state["paused"]:
            yield _of(queue, WARN, f" has been paused for {age}, {_waiting(state)}")
        elif state["closed_age_seconds"] > status.get("forgotten_after_seconds", math.inf):
            yield _of(queue, WARN, f" has been closed by its condition {by} for {age}, {_waiting(state)}")


def overdue(status: Row) -> Iterator[Headline]:
    """Report due tasks that no poller has promoted yet."""
    for queue, state in _queues(status):
        if (age := state["oldest_overdue_age_seconds"]) > OVERDUE_SECONDS:
            not_promoted = f"{count(state['overdue'], 'due task')} not promoted"
            yield _of(queue, BAD, f": {not_promoted}, the oldest of them was due {in_words(age)} ago")


def stalled(status: Row) -> Iterator[Headline]:
    """Report queues from which no tasks are claimed. Queues that are already reported as late are omitted."""
    for queue, state in _queues(status):
        waits = state["oldest_ready_age_seconds"]
        if waits > STALLED_SECONDS and _is_open(state) and not lateness(queue)[0] and not _is_taken(queue, status):
            seconds = in_words(STALLED_STEPS_SECONDS)
            yield _of(queue, BAD, f": no task has been claimed from it for {seconds}, {_waiting(state)}")


def _is_taken(queue: Row, status: Row) -> bool:
    """Whether tasks of the queue are probably being claimed. They are if this node has started one in the last
    STALLED_STEPS_SECONDS. If there are other nodes, a claimed task is enough, because another node may have claimed it.
    """
    steps = round(STALLED_STEPS_SECONDS / status["history"]["step_seconds"])
    is_elsewhere = len(status.get("nodes") or ()) > 1 and queue["state"]["inflight"] > 0
    return is_elsewhere or any((queue.get("history") or _NO_HISTORY)["started"][-steps:])


def late(status: Row) -> Iterator[Headline]:
    """Report late queues, the one with the longest delay first. For queues that are late now, the headline also gives
    the reason, or at least how many workers are busy.
    """
    why = _why_late(status)
    is_open = [queue for queue in status["queues"] if queue["state"] is None or _is_open(queue["state"])]
    for now, seconds, queue in sorted(((*lateness(queue), queue) for queue in is_open), key=lambda each: -each[1]):
        if seconds:
            until = "" if now else f" until {_clock(queue['late']['until'])}"
            text = f" {'is' if now else 'was'} late{until}: {in_words(seconds)}"
            text = f"{text}, but its objective is {in_words(queue['lag_objective_seconds'])}{f'; {why}' if now else ''}"
            yield _of(queue, BAD if now else WARN, text)


def lateness(queue: Row) -> tuple[bool, float]:
    """Return whether the queue is late now, and by how many seconds it is or was late, or 0 if its tasks are on time.

    A queue is late now while its oldest waiting task exceeds the lag objective. It is also late now if more starts have
    exceeded the objective than its lag target allows, and the last of them was only seconds ago. If the last of them
    was a few minutes ago, the queue was late.
    """
    objective = queue["lag_objective_seconds"]
    late = queue.get("late") or _NEVER_LATE
    waits = queue["state"]["oldest_ready_age_seconds"] if queue["state"] is not None else 0.0
    if objective is None:
        return False, 0.0
    if waits > objective or late["now"]:
        return True, max(waits, queue["worst_lag_seconds"] or 0.0 if late["now"] else 0.0)
    return False, late["worst_seconds"] if late["too_many"] else 0.0


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def _why_late(status: Row) -> str:
    if status.get("quiet_seconds"):
        return "this node is quiet"
    slots = Counter[str]()
    running = 0
    for row in workers_of(status):
        slots[row.get("pool") or ""] += row.get("concurrency") or 1  # "" until the master has published the pool
        running += len(row["tasks"])
    taken = max(running, _claimed_here(status))
    if not slots:
        return "there is no worker"
    if taken >= slots.total():
        return f"all workers are busy ({slots.total():,}): tasks arrive faster than they are run"
    if full := sorted(pool["name"] for pool in status.get("pools") or () if pool["busy"] >= slots[pool["name"]] > 0):
        return f"all workers of {' and '.join(f'pool {pool}' for pool in full)} are busy"
    return f"{taken} of {slots.total()} worker slots are busy"


def _claimed_here(status: Row) -> int:
    """Return how many tasks this node holds according to Redis, or 0 if other nodes may hold some of these tasks.

    The number comes from Redis and not from the slots, because a worker appears idle in its slot for a moment between
    two tasks.
    """
    if len(status.get("nodes") or ()) > 1:
        return 0
    return sum(int(state["inflight"]) for _, state in _queues(status))


def failing(status: Row) -> Iterator[Headline]:
    """Report queues of which many attempts have failed on this node over the last few minutes."""
    for queue in status["queues"]:
        attempts = queue.get("attempts") or _NO_ATTEMPTS
        failed = attempts["failed"]
        ended = attempts["failed"] + attempts["done"]
        if failed >= max(LEAST_FAILED, MOST_FAILED_SHARE * ended):
            level = BAD if failed > ended / 2 else WARN
            text = f": {failed} of {ended} attempts failed in the last {in_words(RECENT_SECONDS)}"
            dead = (queue["state"] or {}).get("dead")
            yield _of(queue, level, f"{text}{f', {dead:,} dead tasks' if dead else ''}")


def dead(status: Row) -> Iterator[Headline]:
    for queue, state in _queues(status):
        if state["dead"]:
            yield _of(queue, WARN, f" holds {count(state['dead'], 'dead task')}")


# Helpers of the rules


def _of(queue: Row, level: str, text: str) -> Headline:
    """Return a headline about a queue. `text` is appended to the name of the queue."""
    return Headline(level, f"queue {queue['name']}{text}", f"queues/{queue['name']}")


def workers_of(status: Row) -> list[Row]:
    """Return the rows of the living workers."""
    return living(Role.WORKER, status)


def living(role: Role, status: Row) -> list[Row]:
    """Return the rows of the living processes of a role. Children that are starting or dead, which the status also
    contains, are omitted."""
    return [row for row in status["processes"] if row["role"] == role and row["phase"] is not None]


def _queues(status: Row) -> Iterable[tuple[Row, Row]]:
    """Return each queue whose state Redis has reported, together with this state."""
    return [(queue, queue["state"]) for queue in status["queues"] if queue["state"] is not None]


def _closed(state: Row) -> bool:
    return bool(state["paused"] or state["closed_by"])


def _is_open(state: Row) -> bool:
    return bool(state["served"]) and not _closed(state)


def _waiting(state: Row) -> str:
    waiting = state["ready"] + state["overdue"]
    if not waiting:
        return "no tasks waiting"
    oldest = max(state["oldest_ready_age_seconds"], state["oldest_overdue_age_seconds"])
    # The age of an item that another program pushed is unknown until a worker has examined the item.
    return f"{count(waiting, 'task')} waiting{f', the oldest for {in_words(oldest)}' if oldest else ''}"


def count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
