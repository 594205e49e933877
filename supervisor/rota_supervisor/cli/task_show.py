"""`rota task show`: where a task stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

import click

from rota.client.accounts import AttemptAccount
from rota.client.status import State, TaskStatus, status_of
from rota.printable import printable
from rota.protocol.command import follow
from rota.protocol.entry import Kind
from rota.protocol.epitaph import CRASHED, FAILED, LOST
from rota.protocol.names import fault_in_name
from rota.protocol.progress import progress_row, progress_words
from rota.protocol.task_walk import find_task
from rota_supervisor.cli import command, output
from rota_supervisor.exits import ExitCode, Failure

TASK_ID = click.argument("task_id", metavar="ID")


def check_id(task_id: str) -> None:
    """Check that it is an id. Raises Failure 2."""
    if fault := fault_in_name("id", task_id):
        raise Failure(ExitCode.USAGE, fault)


def require_known(found: TaskStatus) -> None:
    """Leave with 1 and the reasons there may be when nothing is known of a task."""
    if found.state is State.UNKNOWN:
        raise Failure(ExitCode.NO, f'nothing is known of a task "{found.id}": {found.why}')


@click.command(cls=command.RotaCommand)
@TASK_ID
@click.option("--args", "with_args", is_flag=True, help="Show its arguments too, while it lives or is dead.")
def show(*, task_id: str, with_args: bool) -> None:
    """Show where a task stands, or how it ended. Exit 1 when nothing is known of it."""
    check_id(task_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = status_of(task_id, follow(connection.run, find_task(store, task_id)), args=with_args)
    require_known(found)
    if state.json:
        output.put_json(output.facts_of(found) | {"timeline": [output.facts_of(each) for each in timeline_of(found)]})
        return
    for key, value in fields_of(found).items():
        output.put_field(key, value)


def fields_of(found: TaskStatus) -> dict[str, object]:
    """A task as people read it, its time line last."""
    facts = output.facts_of(found)
    facts.pop("attempts", None)  # they stand in the time line
    facts.pop("progress", None)
    progress = progress_words(progress_row(found.progress))
    epitaph, crash = facts.pop("epitaph", {}), facts.pop("last_crash", {})
    told = {"progress": progress} if progress else {}
    lines = "\n".join(printable(str(moment)) for moment in timeline_of(found))  # each on one line, whatever it says
    return {**facts, **told, **epitaph, **{f"last_crash.{key}": crash[key] for key in crash}, "timeline": lines}


# The time line


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened to a task at a time. Times of failures are those of the node's clock, all others Redis time."""

    at: datetime
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.at.isoformat(timespec='milliseconds')}  {self.what}{self.detail and f': {self.detail}'}"


def timeline_of(found: TaskStatus) -> list[Moment]:
    """All that is known of a task's life, in the order of time. A task that is dead has its last words beside this."""
    moments = [*_beginning(found), *(moment for each in found.attempts for moment in _of_attempt(each)), *_end(found)]
    return sorted(moments, key=attrgetter("at"))  # stable: what is of one time stays in its order


def _beginning(found: TaskStatus) -> Iterator[Moment]:
    """What is due and ready is the attempt after the last. Of a task that had to wait, or was given back after a crash,
    it is not known when it was enqueued."""
    attempt = f"attempt {found.attempts[-1].attempt + 1}" if found.attempts else ""
    if found.due_at and found.kind == Kind.RECOVERED.label:
        yield Moment(found.due_at, "given back", attempt)
        return
    if found.due_at:
        at_once = found.kind == Kind.IMMEDIATE.label
        yield Moment(found.due_at, "enqueued") if at_once else Moment(found.due_at, "due", attempt)
    if found.ready_at:
        yield Moment(found.ready_at, "ready", attempt)


def _of_attempt(attempt: AttemptAccount) -> Iterator[Moment]:
    name = f"attempt {attempt.attempt}" if attempt.attempt else "it"
    if attempt.at and attempt.run_seconds:
        began = attempt.at - timedelta(seconds=attempt.run_seconds)
        yield Moment(began, f"{name} started", _where(attempt.node, attempt.pid))
    if attempt.at and attempt.reason in (FAILED, CRASHED, LOST):
        yield Moment(attempt.at, f"{name} {attempt.reason}", attempt.error)


def _end(found: TaskStatus) -> Iterator[Moment]:
    if found.started_at:
        yield Moment(found.started_at, f"attempt {found.attempt} started", _where(found.node, found.pid))
    if found.ended_at:
        reason = str((found.epitaph or {}).get("reason", "")) or found.why
        yield Moment(found.ended_at, found.state.value, reason)


def _where(node: str, pid: int | None) -> str:
    return f"on {node}, pid {pid}" if node else ""
