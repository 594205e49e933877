"""Checks of waiting times: of first starts while workers were idle, and of the restarts of tasks whose worker or node
was killed.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from soak.case import Case
from soak.causes import ENDS_NODE, KILLS, Causes, Span, is_of_processes
from soak.evidence import RunEvent
from soak.faults import KINDS, PRODUCERS, Fault, FaultScope
from soak.findings import Finding, Wrong
from soak.histories import History, Run

WAIT_SECONDS = 3.0
RECOVERY_SECONDS = 1.0
NODE_SECONDS = 2.0  # the time that the recovery from a lost node may take in addition to the lease
LULL_SECONDS = 2.5  # a recovery is measured only if all other faults ended at least this long before
STALL_SECONDS = 0.2  # a call that takes at least this long is a stall; normally a call takes 0.3 ms
REPLACED_SECONDS = 0.5  # the time that it takes to replace a killed worker
# These faults delay no task. A server that is out of memory refuses enqueues, but the fleet still runs the tasks in the
# server.
_HARMLESS = frozenset(
    {
        Fault.KILL_EXPORTER,
        Fault.FLUSH_SCRIPTS,
        Fault.FILL_MEMORY,
        Fault.BAD_TOML,
        Fault.DELETE_SERVED,
        Fault.REPORT,
    }
)

Times = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery of a task whose worker or node was killed. `seconds` is the time from the kill to the moment at
    which the task was logged as returned to its lane, or to its next start if no return was logged. Times in which no
    worker was free, or in which the server responded slowly, do not count.
    """

    task_id: str
    seconds: float
    boot: float
    cause: Span


# Times whose waits cannot be checked


def unrest(case: Case) -> Times:
    """Return the times in which a fault lasted or may still have had effects."""
    lease = case.evidence.setup.lease_seconds
    spans = [span for span in case.causes.spans if span.fault not in _HARMLESS]
    return joined((span.begin, span.end + _after_effects(span, lease)) for span in spans)


def _after_effects(span: Span, lease_seconds: float) -> float:
    """Return for how many seconds after its end a fault may still make tasks wait. They may wait for a new process, a
    connection, or the expiry of a lease.
    """
    if is_of_processes(span.fault):
        return 1.0
    return WAIT_SECONDS if KINDS[span.fault].scope is FaultScope.PROCESSES else lease_seconds + NODE_SECONDS


def busy(case: Case) -> Times:
    """Return the periods in which no worker was free, because each worker was running a task or had just been
    killed."""
    changes: list[tuple[float, int]] = []
    for history in case.histories.values():
        runs = (
            ()
            if history.request is not None and history.request.queue == case.evidence.setup.together
            else history.runs
        )
        for run in runs:
            changes += [(run.began, 1), (_off(case.causes, run), -1)]
    for span in case.causes.of(*KILLS):
        changes += [(span.begin, len(span.pids)), (span.end + REPLACED_SECONDS, -len(span.pids))]
    running = 0
    times = []
    since = None
    for boot, change in sorted(changes):
        running += change
        is_full = running >= case.evidence.setup.workers
        if is_full and since is None:
            since = boot
        elif not is_full and since is not None:
            times.append((since, boot))
            since = None
    return times


def stalls(case: Case) -> Times:
    """Return the times in which a call of a producer took unusually long, because the disk or the processor was
    busy.
    """
    times: Times = []
    for history in case.histories.values():
        request = history.request
        reply = history.replies[:1]
        if request is not None and reply and reply[0].boot - request.boot > STALL_SECONDS:
            times.append((request.boot, reply[0].boot))
    return joined(times)


def _off(causes: Causes, run: Run) -> float:
    """Return when a worker was no longer busy with a run. This is the end of the run, or the kill of the worker, or 5 s
    after the start if neither is known.
    """
    if run.end is not None:
        return run.end.boot
    killed = [span.begin for span in causes.of(*KILLS) if run.start.pid in span.pids and span.begin >= run.began]
    return min(killed, default=run.began + 5.0)


def joined(times: Iterable[tuple[float, float]]) -> Times:
    """Return the times in order. Times that overlap are joined."""
    found: Times = []
    for begin, end in sorted(times):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def without(begin: float, end: float, times: Times) -> Times:
    """Return the parts of the time from `begin` to `end` that are outside `times`. `times` must be a result of
    `joined`.
    """
    left = begin
    found: Times = []
    for since, until in times[max(0, bisect_left(times, (begin, -math.inf)) - 1) :]:
        if since >= end:
            break
        if until > left:
            if since > left:
                found.append((left, since))
            left = until
    return [*found, (left, end)] if left < end else found


# Waiting


def waited(case: Case) -> Iterator[Finding]:
    """Yield a finding for each first start that came too late, that is, after a worker had been idle for too long while
    there was no fault.
    """
    cut = joined([*unrest(case), *busy(case), *stalls(case)])
    apart = {*case.evidence.setup.apart, case.evidence.setup.order_queue}
    for history in case.histories.values():
        request = history.request
        accepted = history.accepted
        if request is None or accepted is None or request.follows or request.queue in apart or not history.runs:
            continue
        ready = max(accepted.boot, request.boot + max(0.0, request.due - request.at))
        left = without(ready, history.runs[0].began, cut)
        longest = max((end - begin for begin, end in left), default=0.0)
        if longest > WAIT_SECONDS:
            text = f"waited {longest:.3f} s for its first start in queue {request.queue} beside an idle worker"
            yield Finding(Wrong.WAITED, text, history.id, history.runs[0].began)


# Recovery


def recoveries(case: Case, *, of_nodes: bool) -> list[Recovery]:
    """Return the recoveries of tasks whose worker was killed or, if `of_nodes` is set, whose node was killed.
    Recoveries that were disturbed by another fault are left out.
    """
    faults = ENDS_NODE if of_nodes else frozenset({Fault.KILL_WORKER, Fault.KILL_SEVERAL, Fault.KILL_WORKERS})
    cut = joined([*busy(case), *stalls(case)])
    found = []
    for history in case.histories.values():
        for run, following in pairwise(history.runs):
            span = _hit(case.causes, run, faults, following.began)
            if span is None or not _is_judged(case, history, span, following):
                continue
            since = span.begin if of_nodes else span.end
            back = case.given_back(history.id, since, following.began)
            seconds = sum(until - begin for begin, until in without(since, back, cut))
            found.append(Recovery(history.id, seconds, back, span))
    return found


def _hit(causes: Causes, run: Run, faults: frozenset[Fault], until: float) -> Span | None:
    if run.finished is not None or run.did(RunEvent.DIES):
        return None
    for span in causes.of(*faults):
        if not run.began <= span.begin <= until:
            continue
        is_named = run.start.pid in span.pids
        is_of_node = span.fault in ENDS_NODE and causes.node_in_force(span.target, span.begin) == run.start.node
        if is_named or is_of_node:
            return span
    return None


def _is_judged(case: Case, history: History, span: Span, following: Run) -> bool:
    request = history.request
    if request is None or request.queue in {*case.evidence.setup.apart, case.evidence.setup.order_queue}:
        return False
    # The other nodes must recover the tasks of a lost node, whether or not the node comes back.
    aside = {PRODUCERS, span.target} if span.fault in ENDS_NODE else {PRODUCERS}
    others = [other for other in case.causes.spans if other is not span and other.target not in aside]
    return not any(
        other.overlaps(span.begin, following.began, LULL_SECONDS)
        for other in others
        if other.fault not in _HARMLESS and not is_of_processes(other.fault)
    )


def slow_recoveries(case: Case) -> Iterator[Finding]:
    """Yield a finding for each recovery from a lost node that took longer than the lease plus 2 s. Recoveries from
    killed workers are judged together: if their 99th percentile is over 1 s, yield one finding, about the slowest of
    them.
    """
    limit = case.evidence.setup.lease_seconds + NODE_SECONDS
    for each in recoveries(case, of_nodes=True):
        if each.seconds > limit:
            text = f"started again {each.seconds:.3f} s after {each.cause}; {limit:g} s are allowed"
            yield Finding(Wrong.RECOVERY, text, each.task_id, each.boot)
    of_workers = recoveries(case, of_nodes=False)
    if percentile([each.seconds for each in of_workers], 0.99) > RECOVERY_SECONDS:
        worst = max(of_workers, key=lambda each: each.seconds)
        text = f"started again {worst.seconds:.3f} s after {worst.cause}, and that is the 99th percentile or worse"
        yield Finding(Wrong.RECOVERY, text, worst.task_id, worst.boot)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that is at least as large as this share of the values, or 0 if there are no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
