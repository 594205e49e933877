"""Facts about tasks, as JSON and as text for people. They are shown on the command line and on the exporter's pages."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from rota.client.status import AttemptRecord, TaskStatus
from rota.display_text import printable
from rota.protocol.entry import Kind
from rota.protocol.outcome import CRASHED, FAILED, LOST
from rota.protocol.progress import progress_row, progress_summary


def facts_of(thing: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values. Times are returned as text, and fields without a known value are
    left out."""
    return dataclasses.asdict(thing, dict_factory=_known)


def _known(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = ((key, value.isoformat() if isinstance(value, datetime) else value) for key, value in pairs)
    return {key: value for key, value in plain if value not in ("", None, ())}


def task_facts(found: TaskStatus) -> dict[str, Any]:
    """Return the state of a task, or how it ended, with its timeline."""
    return facts_of(found) | {"timeline": [facts_of(each) for each in timeline_of(found)]}


def fields_of(found: TaskStatus) -> dict[str, object]:
    """Return the fields of a task as text for people, with the timeline as the last field."""
    facts = facts_of(found)
    facts.pop("attempts", None)  # The attempts are in the timeline.
    facts.pop("progress", None)
    progress = progress_summary(progress_row(found.progress))
    death = facts.pop("death", {})
    crash = facts.pop("last_crash", {})
    extra = {"progress": progress} if progress else {}
    lines = "\n".join(printable(str(moment)) for moment in timeline_of(found))  # printable() would escape line breaks
    return {**facts, **extra, **death, **{f"last_crash.{key}": crash[key] for key in crash}, "timeline": lines}


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """An event in the life of a task. The times at which a failed attempt started and ended were measured by the clock
    of the node on which it ran. All other times were measured by the clock of Redis."""

    at: datetime
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.at.isoformat(timespec='milliseconds')}  {self.what}{self.detail and f': {self.detail}'}"


def timeline_of(found: TaskStatus) -> list[TimelineRow]:
    """Return all known events in the life of a task, in order of time. The last event of a dead task contains the
    reason from its death record."""
    moments = [*_beginning(found), *(moment for each in found.attempts for moment in _of_attempt(each)), *_end(found)]
    return sorted(moments, key=attrgetter("at"))  # The sort is stable, so events of the same time keep their order.


def _beginning(found: TaskStatus) -> Iterator[TimelineRow]:
    """Yield the events that precede the current or next attempt: the time at which the task was due or was given back,
    and the time at which it became ready.

    A task that was enqueued to run at once was due at the time of its enqueue, so its first event is the enqueue. If
    the task was delayed, retried or given back, the time of the enqueue is not known.
    """
    attempt = f"attempt {found.attempts[-1].attempt + 1}" if found.attempts else ""
    if found.due_at and found.kind == Kind.RECOVERED.label:
        yield TimelineRow(found.due_at, "given back", attempt)
        return
    if found.due_at:
        at_once = found.kind == Kind.IMMEDIATE.label
        yield TimelineRow(found.due_at, "enqueued") if at_once else TimelineRow(found.due_at, "due", attempt)
    if found.ready_at:
        yield TimelineRow(found.ready_at, "ready", attempt)


def _of_attempt(attempt: AttemptRecord) -> Iterator[TimelineRow]:
    name = f"attempt {attempt.attempt}" if attempt.attempt else "it"
    if attempt.at and attempt.run_seconds:
        began = attempt.at - timedelta(seconds=attempt.run_seconds)
        yield TimelineRow(began, f"{name} started", _where(attempt.node, attempt.pid))
    if attempt.at and attempt.reason in (FAILED, CRASHED, LOST):
        yield TimelineRow(attempt.at, f"{name} {attempt.reason}", attempt.error)


def _end(found: TaskStatus) -> Iterator[TimelineRow]:
    if found.started_at:
        yield TimelineRow(found.started_at, f"attempt {found.attempt} started", _where(found.node, found.pid))
    if found.ended_at:
        reason = str((found.death or {}).get("reason", "")) or found.why
        yield TimelineRow(found.ended_at, found.state.value, reason)


def _where(node: str, pid: int | None) -> str:
    return f"on {node}, pid {pid}" if node else ""
