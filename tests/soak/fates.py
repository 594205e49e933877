"""Checks of each task's fate. They find tasks that were lost, and tasks that must not have been started."""

from collections.abc import Iterator

from soak.case import Case
from soak.causes import ENDS_NODE, SILENCES, Causes
from soak.evidence import CallEvent, RunEvent
from soak.findings import Finding, Wrong
from soak.histories import History


def lost(case: Case) -> Iterator[Finding]:
    """Yield a finding for each task that was accepted or started, but did not end in a permitted way."""
    for history in case.histories.values():
        if history.accepted is None and not (history.may_exist and history.runs):
            continue
        if history.ends or is_dead_by_right(case, history) or _may_be_cancelled(history) or is_dropped(case, history):
            continue
        if not is_gone_with_the_server(case.causes, history):
            reason = case.deaths.get(history.id)
            what = f"set aside as dead ({reason}) without reason" if reason else "came to no end"
            yield Finding(Wrong.LOST, f"{what}; {_summary(history)}", history.id, _last_seen(history))


def is_dead_by_right(case: Case, history: History) -> bool:
    """Whether it is correct that the task became dead, because failures, recorded crashes or recorded losses had used
    up its attempts.
    """
    request = history.request
    setup = case.evidence.setup
    raised = history.count(RunEvent.RAISED)
    if request is None:
        return False
    if raised > request.retries or (request.gives_up and raised):
        return True
    reason = case.deaths.get(history.id)
    if reason == "crashed":
        return history.unfinished >= setup.crash_limit
    return reason == "lost" and sum(1 for _ in case.causes.of(*ENDS_NODE, *SILENCES)) >= setup.loss_limit


def is_dropped(case: Case, history: History) -> bool:
    """Whether it is correct that the task was dropped from its chain, because the task before it was never done."""
    before = () if history.request is None else history.request.before
    return len(before) == 1 and not any(case.histories[each].ends for each in before)


def has_ended(case: Case, history: History, boot: float) -> bool:
    """Whether the task may count as ended at that time. It counts as ended if it was done or correctly dead by then, if
    it may have been cancelled, or if it was never accepted.
    """
    if history.accepted is None or _may_be_cancelled(history):
        return True
    ends = [run.end.boot for run in history.ends if run.end is not None]
    if ends:
        return min(ends) <= boot
    last_start = max((run.began for run in history.runs), default=0.0)
    return is_dead_by_right(case, history) and last_start <= boot


def is_gone_with_the_server(causes: Causes, history: History) -> bool:
    """Whether the server may have forgotten the task, because the server was killed shortly after it had accepted the
    task.
    """
    first = history.request
    last = history.accepted
    return first is not None and bool(causes.of_lost_writes(first.boot, last.boot if last else first.boot))


def _may_be_cancelled(history: History) -> bool:
    outcomes = {each.what for each in history.cancels}
    return bool(outcomes & {CallEvent.CANCELLED, CallEvent.CANCELLING, CallEvent.CANCEL_UNKNOWN}) or outcomes == {
        CallEvent.CANCEL
    }


def _last_seen(history: History) -> float:
    marks = [mark.boot for run in history.runs for mark in (run.start, run.end) if mark is not None]
    return max([*marks, *(each.boot for each in history.replies)], default=0.0)


def _summary(history: History) -> str:
    ends = [run.end.what.value if run.end else "nothing" for run in history.runs]
    return f"{len(history.runs)} starts ({', '.join(ends)})" if ends else "never started"


def phantoms(case: Case) -> Iterator[Finding]:
    """Yield a finding for each start of a task that no producer sent, that was refused, that had used up its attempts,
    or that was cancelled.
    """
    for history in case.histories.values():
        if not history.runs:
            continue
        first = history.runs[0].began
        if history.request is None:
            yield Finding(Wrong.PHANTOM, "started, and nobody had sent it", history.id, first)
        elif not history.may_exist:
            outcomes = ", ".join(each.what for each in history.replies)
            yield Finding(Wrong.PHANTOM, f"started, though its producer was told: {outcomes}", history.id, first)
        yield from _after_its_last_attempt(case, history)
        yield from _after_cancel(case, history)


def _after_its_last_attempt(case: Case, history: History) -> Iterator[Finding]:
    """Yield a finding for a start after the last permitted failure. `repeats` checks starts after a success."""
    request = history.request
    raised = 0
    for run in history.runs:
        if request is not None and (raised > request.retries or (request.gives_up and raised)):
            if not case.causes.of_lost_writes(run.began - case.evidence.setup.lease_seconds, run.began):
                yield Finding(Wrong.PHANTOM, f"started after {raised} failures, its last", history.id, run.began)
            return
        raised += run.did(RunEvent.RAISED)


def _after_cancel(case: Case, history: History) -> Iterator[Finding]:
    waited = history.cancel(CallEvent.CANCELLED)
    ran = history.cancel(CallEvent.CANCELLING)
    allowed = 0
    reply = waited
    if waited is None and ran is not None:
        reply = ran
        ends = [(run.began, run.finished) for run in history.runs]
        allowed = 0 if any(began <= ran.boot <= (end or began) for began, end in ends) else 1
    if reply is None:
        return
    later = [run for run in history.runs if run.began > reply.boot][allowed:]
    if later and not _is_excused(case.causes, reply.boot, later[0].began):
        word = "waited" if waited else "ran"
        yield Finding(Wrong.PHANTOM, f"started after it was cancelled while it {word}", history.id, later[0].began)


def _is_excused(causes: Causes, cancelled: float, started: float) -> bool:
    """Whether the server may have forgotten the cancellation, because it was killed and lost writes."""
    return bool(causes.of_lost_writes(cancelled, cancelled)) and started > cancelled
