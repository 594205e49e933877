"""`rota task ls`: the tasks that stand in queues."""

from collections.abc import Sequence
from typing import Final

import click

from rota.client.peek import DEFAULT_LIMIT, PLACES, QueuedTask, TasksFound, WantedTasks, find
from rota.client.status import State
from rota.durations import in_words
from rota.protocol.command import follow
from rota.protocol.names import fault_in_name, fault_in_queue_name
from rota.protocol.progress import progress_row, progress_words
from rota_supervisor.cli import command, output
from rota_supervisor.cli.known_queues import warn_of_unknown
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of

_SHOWN_REASON: Final = 60
_NONE: Final = "-"
_MORE: Final = {State.RUNNING: ("OWNER", "PROGRESS"), State.DEAD: ("REASON",)}
Table = tuple[Sequence[str], Sequence[Sequence[object]]]


@click.command("ls", cls=command.RotaCommand)
@click.argument("queue", required=False)
@click.option(
    "--state",
    default=State.READY.value,
    show_default=True,
    type=click.Choice([place.value for place in PLACES]),
    help="Where they stand.",
)
@click.option("--task", default="", metavar="NAME", help="Only those of this task.")
@click.option(
    "--limit", default=DEFAULT_LIMIT, show_default=True, type=click.IntRange(min=1), help="At most this many."
)
def list_tasks(*, queue: str | None, state: str, task: str, limit: int) -> None:
    """List the first tasks of QUEUE, or of all queues: those that are ready, scheduled, running or dead.

    Nothing is looked at beyond what is shown. Where some are left out, it ends after 10,000 and says so.
    """
    if queue and (fault := fault_in_queue_name(queue)):
        raise Failure(ExitCode.USAGE, fault)
    if task and (fault := fault_in_name("task name", task)):
        raise Failure(ExitCode.USAGE, fault)
    context, wanted = command.current_state(), WantedTasks(State(state), queue or "", task, limit)
    with context.redis() as (config, store, connection):
        found = follow(connection.run, find(store, wanted))
        if queue and not found.tasks:
            warn_of_unknown((queue,), config, store, connection)
    header, rows = table_of(wanted.state, found.tasks)
    context.table(list(map(facts_of, found.tasks)), header, rows)
    if words := rest_in_words(found, limit) if found.tasks else _none_in_words(wanted):
        output.say(words)


def table_of(state: State, tasks: Sequence[QueuedTask]) -> Table:
    """The header and the rows: age is the time since a task came into its lane, or died."""
    header = ["ID", "QUEUE", "TASK", "DUE", "DUE IN" if state is State.SCHEDULED else "AGE", "ATTEMPT"]
    return [*header, *_MORE.get(state, ())], [[*_common(task), *_more_of(task)] for task in tasks]


def _common(task: QueuedTask) -> list[object]:
    due = task.due_at.strftime("%Y-%m-%dT%H:%M:%SZ") if task.due_at else _NONE
    return [task.id or _NONE, task.queue or _NONE, task.name or _NONE, due, _time_of(task), task.attempt]


def _time_of(task: QueuedTask) -> str:
    if task.state is State.SCHEDULED and task.due_in_seconds is not None:
        late = task.due_in_seconds < 0
        return f"{'overdue ' if late else ''}{in_words(abs(task.due_in_seconds))}"
    return _NONE if task.age_seconds is None else in_words(task.age_seconds)


def _more_of(task: QueuedTask) -> list[object]:
    if task.state is State.RUNNING:
        return [task.owner, progress_words(progress_row(task.progress)) or _NONE]
    if task.state is State.DEAD:
        epitaph = task.epitaph
        why = ": ".join(filter(None, (epitaph.reason, epitaph.error))) if epitaph else ""
        return [why if len(why) <= _SHOWN_REASON else f"{why[: _SHOWN_REASON - 3]}..."]
    return []


def _none_in_words(wanted: WantedTasks) -> str:
    where = f' in queue "{wanted.queue}"' if wanted.queue else ""
    what = f' "{wanted.task}"' if wanted.task else ""
    return f"no task{what} is {wanted.state}{where}"


def rest_in_words(found: TasksFound, limit: int) -> str:
    """What was not shown, "" when all was."""
    if not found.more:
        return ""
    if len(found.tasks) < limit:
        return f"looked at {output.counted(found.looked_at, 'task')} and ended the search: there may be more behind"
    return f"there are more: these are the first {limit}, see --limit"
