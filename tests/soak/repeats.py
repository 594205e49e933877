"""Checks of tasks that were started more than once. Each start after the first must have a recorded cause."""

from collections.abc import Iterator
from itertools import pairwise

from soak.case import Case
from soak.evidence import RunEvent
from soak.findings import Finding, Wrong
from soak.histories import History, Run

# After the last record of a task, the worker needs about 30 us to write the outcome into its slot. On a busy machine,
# other processes may delay it.
SETTLING_SECONDS = 0.1


def repeats(case: Case) -> Iterator[Finding]:
    """Yield the repeated starts that no recorded cause explains."""
    for history in case.histories.values():
        for run, following in pairwise(history.runs):
            if cause_of(case, history, run, following) is None:
                yield _finding(run, following)


def cause_of(case: Case, history: History, run: Run, following: Run) -> str | None:
    """Return why a task was started again after this run, or None if no recorded event explains it."""
    causes = case.causes
    until = following.began
    ended_before = run.end is not None and run.end.boot <= until
    if ended_before and run.did(RunEvent.RAISED):
        return "it had raised"
    if ended_before and run.did(RunEvent.DIES):
        return "it had killed its worker"
    lost = causes.of_lost_lease(run, until) or causes.of_node_end(run, until) or _of_lost_writes(case, run, until)
    if lost is not None or (run.finished is not None and not ended_before):
        return lost
    if run.finished is None:
        return causes.of_death(run, until)
    return _of_death_while_settling(case, history, run, until)


def _of_lost_writes(case: Case, run: Run, until: float) -> str | None:
    """Return the fault that killed the server and so may have lost a write of this run: the claim, made just before the
    start, or the outcome, sent just after the end.
    """
    instants = [run.began, *([run.finished] if run.finished is not None and run.finished <= until else [])]
    return next((cause for each in instants if (cause := case.causes.of_lost_writes(each, each))), None)


def _of_death_while_settling(case: Case, history: History, run: Run, until: float) -> str | None:
    """Return the fault that killed the worker after the function had ended but before its outcome was in the slot. A
    later death does not explain why the task was started again.
    """
    finished = run.finished
    pid = run.start.pid
    assert finished is not None
    if (history.id, pid) in case.settled or any(finished < seen for seen in case.last_seen_of[pid]):
        return None
    cause = case.causes.of_death(run, until)
    kills = [span for span in case.causes.spans if pid in span.pids and span.begin <= until]
    near = any(span.begin - SETTLING_SECONDS <= finished <= span.end + SETTLING_SECONDS for span in kills)
    return cause if near else None


def _finding(run: Run, following: Run) -> Finding:
    ended = run.finished is not None and run.finished <= following.began
    how = "had come to its end" if ended else "nobody is known to have ended"
    later = f"{following.began - run.began:.3f} s after the run of pid {run.start.pid}"
    words = f"attempt {following.start.attempt} started {later}, which {how}: no cause is on record"
    return Finding(Wrong.DUPLICATED, words, run.start.id, following.began)
