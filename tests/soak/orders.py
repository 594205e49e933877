"""Checks of when tasks start: no task before its due time, first in, first out within a queue, fairness between queues,
and one task at a time for each unique key.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from soak.case import Case
from soak.causes import KILLS, SILENCES, is_of_processes
from soak.evidence import NO_NUMBER, CallEvent
from soak.fates import has_ended
from soak.faults import Fault
from soak.findings import Finding, Wrong
from soak.histories import History, Run

# The tolerance for early starts. Due times are rounded to 1 us, and the wall clock may be slewed by 0.5 ms per second.
EARLY_SECONDS = 0.001
# In the absence of faults, the key of a task is free this long after the end of the task, even on a busy machine.
RELEASED_SECONDS = 3.0
FREE_MOVES = 2  # the numbers of starts of two queues may differ by this much, because each queue may be one claim ahead


def early(case: Case) -> Iterator[Finding]:
    """Yield a finding for each start that was too early: before the due time that the producer recorded, or before the
    one in the task's entry.
    """
    for history in case.histories.values():
        request = history.request.due if history.request is not None else 0.0
        for run in history.runs:
            due = max(request, run.start.due)
            if run.start.at < due - EARLY_SECONDS:
                text = f"attempt {run.start.attempt} started {(due - run.start.at) * 1000:.1f} ms before it was due"
                yield Finding(Wrong.EARLY, text, history.id, run.began)


def ahead(case: Case) -> Iterator[Finding]:
    """Yield a finding for each task that was started too early, when a task that it has to follow had not ended yet."""
    for history in case.histories.values():
        for run in history.runs[:1]:
            before = () if history.request is None else history.request.before
            going = [each for each in before if not has_ended(case, case.histories[each], run.began)]
            if going:
                text = f"started before {len(going)} of the {len(before)} tasks that it follows had ended: {going[:3]}"
                yield Finding(Wrong.EARLY, text, history.id, run.began)


# First in, first out


def out_of_order(case: Case) -> Iterator[Finding]:
    """Check the order in the queue that a single worker serves. Yield a finding for each first attempt that a later
    task overtook, and for each task that was given back after a kill of its worker and did not start next.
    """
    steps = sorted(_steps(case), key=lambda step: step[1].began)
    last: tuple[int, Run] | None = None
    for number, run in steps:
        if run.start.attempt == 1 and last is not None and number < last[0]:
            text = f"number {number} started after number {last[0]}, which was sent later"
            yield Finding(Wrong.ORDER, text, run.start.id, run.began)
        if last is None or number > last[0]:
            last = number, run
    yield from _not_at_the_head(case, steps)


def _steps(case: Case) -> Iterator[tuple[int, Run]]:
    """Yield the tasks of the ordered queue, each with the number that its producer gave it and with its first run.
    Tasks that may have been affected by a kill of the server are left out, because no order is promised for them.
    """
    for history in case.histories.values():
        request = history.request
        if request is None or request.number == NO_NUMBER or not history.runs:
            continue
        if not case.causes.of_lost_writes(request.boot, history.runs[0].began):
            yield request.number, history.runs[0]


def _not_at_the_head(case: Case, steps: list[tuple[int, Run]]) -> Iterator[Finding]:
    times = [run.began for _, run in steps]
    for number, run in steps:
        runs = case.histories[run.start.id].runs
        if run.finished is not None or len(runs) < 2:
            continue
        again = runs[1].began
        kills = [s for s in case.causes.of(*KILLS) if run.start.pid in s.pids and run.began <= s.begin <= again]
        if not kills:
            continue
        killed = kills[0]
        others = [span for span in case.causes.spans if not is_of_processes(span.fault)]
        if any(span.overlaps(killed.begin, again, 2.0) for span in others):
            continue  # because of another fault, the master may not have returned the task in time
        passed = [other for other, _ in steps[bisect_left(times, killed.end) : bisect_left(times, again)]]
        if passed:
            text = f"number {number} was given back, and {passed[:5]} started before it"
            yield Finding(Wrong.ORDER, text, run.start.id, again)


# Fairness


@dataclass(frozen=True, slots=True)
class _Move:
    """A change in the number of waiting tasks of a queue. `waiting` is 1 when a task was accepted, and -1 when a task
    was started.
    """

    boot: float
    queue: str
    waiting: int


def unfair(case: Case) -> Iterator[Finding]:
    """Yield pairs of queues that were not served equally while both had waiting tasks. The queues are in one tier and
    have equal weights.

    A claim takes one task, and the rotation keeps the numbers of claims from any two queues within one of each other.
    However, tasks may start in a different order than they were claimed, so each worker may hold one claimed task that
    has not started yet. Each death of a worker may cost one more claim.
    """
    for one, other in combinations(case.evidence.setup.fair, 2):
        worst, boot, bound = _worst(case, one, other)
        if worst > bound:
            text = f"{one} and {other} both had tasks waiting; one was served {worst} times more, {bound} are allowed"
            yield Finding(Wrong.FAIRNESS, text, boot=boot)


def _worst(case: Case, one: str, other: str) -> tuple[int, float, int]:
    """Examine the periods in which both queues had waiting tasks. Return the largest difference between the numbers of
    starts from the two queues, the time of this difference, and the permitted difference.
    """
    workers = case.evidence.setup.workers
    waiting = {one: 0, other: 0}
    ahead = least = most = 0
    began = 0.0
    worst = (0, 0.0, FREE_MOVES + workers)
    for move in sorted(_moves(case, (one, other)), key=lambda each: each.boot):
        waiting[move.queue] += move.waiting
        # The queue may be empty, because the workers may hold all of its waiting tasks.
        if min(waiting.values()) <= workers:
            ahead = least = most = 0
            began = move.boot
            continue
        if move.waiting < 0:
            ahead += 1 if move.queue == one else -1
            least = min(least, ahead)
            most = max(most, ahead)
            if most - least - FREE_MOVES - workers > worst[0] - worst[2]:
                bound = FREE_MOVES + workers + _disturbed(case, began, move.boot)
                worst = max(worst, (most - least, move.boot, bound), key=lambda each: each[0] - each[2])
    return worst


def _moves(case: Case, queues: tuple[str, ...]) -> Iterator[_Move]:
    for history in case.histories.values():
        request = history.request
        accepted = history.accepted
        if request is None or request.queue not in queues or accepted is None:
            continue
        yield _Move(accepted.boot, request.queue, 1)
        yield _Move(max(history.runs[0].began if history.runs else 0.0, accepted.boot), request.queue, -1)


def _disturbed(case: Case, began: float, until: float) -> int:
    """Return how many claims may have been lost between these times, because a fault hit the processes that
    held them.
    """
    hit = [span for span in case.causes.spans if span.overlaps(began, until, case.evidence.setup.lease_seconds + 2)]
    if any(span.lost_seconds or span.fault in SILENCES for span in hit):
        return case.evidence.setup.workers * (len(hit) + 1)
    return sum(max(1, len(span.pids)) for span in hit if span.fault not in (Fault.FLUSH_SCRIPTS, Fault.FILL_MEMORY))


# Unique keys


def not_unique(case: Case) -> Iterator[Finding]:
    """Yield a finding for each task that was accepted although another live task held its unique key, and for each task
    that was refused although the task with its key had ended long before.
    """
    by_key: dict[str, list[History]] = {}
    for history in case.histories.values():
        if history.request is not None and history.request.unique:
            by_key.setdefault(history.request.unique, []).append(history)
    for key, histories in by_key.items():
        yield from _held_twice(case, key, histories)
    for history in case.histories.values():
        yield from _held_too_long(case, history)


def _held_twice(case: Case, key: str, histories: list[History]) -> Iterator[Finding]:
    """Yield a finding for each task that was accepted while a live task held its key. A task was live at least from the
    reply that accepted it to the end of its first successful run.
    """
    for holder in histories:
        accepted = holder.accepted
        if accepted is None or not holder.ends or holder.cancels:
            continue
        end = min(run.end.boot for run in holder.ends if run.end)
        if case.causes.of_lost_writes(accepted.boot, end):
            continue
        for history in histories:
            taken = history.accepted
            if taken is None or history.request is None or history is holder:
                continue
            if accepted.boot < history.request.boot and taken.boot < end:
                text = f"accepted with the unique key {key!r}, which {holder.id} held for {end - taken.boot:.3f} s more"
                yield Finding(Wrong.UNIQUE, text, history.id, taken.boot)


def _held_too_long(case: Case, history: History) -> Iterator[Finding]:
    refused = history.reply(CallEvent.HELD)
    request = history.request
    holder = case.histories.get(refused.reply) if refused is not None else None
    if holder is None or request is None or refused is None or not holder.ends or holder.unfinished:
        return
    end = max(run.end.boot for run in holder.ends if run.end)
    calm = not any(span.overlaps(end - 1.0, request.boot, RELEASED_SECONDS) for span in case.causes.spans)
    if calm and request.boot - end > RELEASED_SECONDS:
        text = f"its unique key was held by {holder.id}, which had ended {request.boot - end:.3f} s before"
        yield Finding(Wrong.UNIQUE, text, history.id, refused.boot)
