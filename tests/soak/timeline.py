"""The timeline of one task: all records about the task from all sources, ordered by time."""

from collections.abc import Iterator

from soak.case import Case
from soak.causes import Span
from soak.evidence import Evidence, Logged, Ran, Sent
from soak.histories import History

AROUND_SECONDS = 1.0  # faults are also shown if they are within this time of the first or the last record
MOST_LINES = 200
_SHOWN_ELSEWHERE = frozenset({"timestamp", "level", "event", "exception", "task_id"})

Line = tuple[float, str]


def timeline(case: Case, task_id: str) -> list[str]:
    """Return lines with all records of a task and of the processes that ran the task, and with the faults during that
    time. Times are in seconds after the first record of the soak.
    """
    history = case.histories.get(task_id, History(task_id))
    own = [*_sent_lines(history), *_run_lines(history)]
    if not own:
        return [f"nothing is known of {task_id!r}"]
    pids = {run.start.pid for run in history.runs}
    owners = {run.start.owner for run in history.runs}
    lines = [*own, *(_log_line(line) for line in case.evidence.logged if _is_about(line, task_id, pids, owners))]
    begin = min(lines)[0] - AROUND_SECONDS
    end = max(own)[0] + AROUND_SECONDS
    lines += [line for span in case.causes.spans if span.overlaps(begin, end) for line in _span_lines(span)]
    zero = _first(case.evidence)
    shown = [f"{boot - zero:+12.6f} {words}" for boot, words in sorted(lines) if begin - 60.0 <= boot <= end + 60.0]
    left = len(shown) - MOST_LINES
    return shown if left <= 0 else [*shown[:MOST_LINES], f"... and {left} lines more"]


def _first(evidence: Evidence) -> float:
    firsts = [*(each.boot for each in evidence.sent[:1]), *(each.boot for each in evidence.ran[:1])]
    return min([*firsts, *(each.boot for each in evidence.strikes[:1])], default=0.0)


def _sent_lines(history: History) -> Iterator[Line]:
    request = [history.request] if history.request is not None else []
    for each in (*request, *history.replies, *history.cancels):
        yield each.boot, f"producer  {each.what} {_known(each)}".rstrip()


def _known(sent: Sent) -> str:
    shown = ("queue", "name", "due", "unique", "fails", "kills", "gives_up", "reply")
    known = [f"{name}={getattr(sent, name)}" for name in shown if getattr(sent, name)]
    return " ".join([*known, *([f"number={sent.number}"] if sent.number >= 0 else [])])


def _run_lines(history: History) -> Iterator[Line]:
    for run in history.runs:
        for mark in (run.start, run.end):
            if mark is not None:
                yield mark.boot, f"task      {_mark(mark)}"


def _mark(mark: Ran) -> str:
    life = f"pid={mark.pid} owner={mark.owner}"
    return f"{mark.what} attempt={mark.attempt} crashes={mark.crashes} {life} due={mark.due:.6f}"


def _is_about(line: Logged, task_id: str, pids: set[int], owners: set[str]) -> bool:
    fields = line.fields
    if fields.get("task_id") == task_id:
        return True
    is_of_process = fields.get("child_pid") in pids or fields.get("owner") in owners
    return "task_id" not in fields and (is_of_process or (fields.get("pid") in pids and fields.get("role") == "worker"))


def _log_line(line: Logged) -> Line:
    known = " ".join(f"{name}={value}" for name, value in line.fields.items() if name not in _SHOWN_ELSEWHERE)
    return line.boot, f"log of {line.target}  {line.event} {known}"


def _span_lines(span: Span) -> Iterator[Line]:
    pids = f" pids={sorted(span.pids)}" if span.pids else ""
    yield span.begin, f"nemesis   start of {span}{pids}"
    if span.end != span.begin:
        yield span.end, f"nemesis   end of {span}"
