"""`rota task ls` and `rota task show`: the tasks that stand in queues, and where one of them is.

Redis holds neither the process nor the start of one that runs: a worker marks a start in its own slot, which costs the
server nothing. The master of its node knows both, or that node's HTTP.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rota.client.queues import DEFAULT_LIMIT, QueuedTask, TasksFound, WantedTasks, find
from rota.client.status import TaskStatus, status_of
from rota.durations import in_words
from rota.protocol.command import follow
from rota.protocol.keys import fault_in_name, fault_in_queue_name
from rota.protocol.progress import progress_row, progress_words
from rota.protocol.task_states import LISTED, State
from rota.protocol.walks import find_task
from rota_supervisor.cli import command, output
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.cli.health import token_of
from rota_supervisor.cli.other_queues import warn_of_unknown
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of, fields_of, task_facts
from rota_supervisor.node_http import NodeSilent, node_of_url

if TYPE_CHECKING:
    from rota.protocol.nodes import Node


_SHOWN_REASON: Final = 60
_NONE: Final = "-"
_MORE: Final = {State.RUNNING: ("OWNER", "PROGRESS"), State.DEAD: ("REASON",)}
Table = tuple[Sequence[str], Sequence[Sequence[object]]]
TASK_ID = click.argument("task_id", metavar="ID")


@click.command("ls", cls=command.RotaCommand)
@click.argument("queue", required=False)
@click.option(
    "--state",
    default=State.READY.value,
    show_default=True,
    type=click.Choice([state.value for state in LISTED]),
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


# One task


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
    with state.redis() as (config, store, connection):
        found = status_of(task_id, follow(connection.run, find_task(store, task_id)), args=with_args)
        nodes = connection.run(store.nodes()) if found.state is State.RUNNING else []
    require_known(found)
    run = find_run(found, config, nodes) if found.state is State.RUNNING else None
    if run is not None:
        found = dataclasses.replace(found, started_at=run.started_at, pid=run.pid)
    if state.json:
        output.put_json(task_facts(found) | ({} if run is None else {"running_seconds": run.seconds}))
        return
    age = {} if run is None else {"running_for": in_words(run.seconds)}
    fields = fields_of(found)
    timeline = {"timeline": fields.pop("timeline")}
    for key, value in {**fields, **age, **timeline}.items():
        output.put_field(key, value)


# Where and since when it runs


class RunningAttempt(NamedTuple):
    """An attempt under way: the task, its worker's process, and for how many seconds it has run."""

    task_id: str
    pid: int
    seconds: float

    @property
    def started_at(self) -> datetime:
        """When it started, by the clock of this machine."""
        return datetime.now(UTC) - timedelta(seconds=self.seconds)


def find_run(found: TaskStatus, config: Config, nodes: Iterable["Node"]) -> RunningAttempt | None:
    """Return the run of a task in progress; None if neither the master here nor the task's node shows it."""
    url = next((node.report.url for node in nodes if node.name == found.node), None)
    with contextlib.suppress(NodeSilent, ValueError):
        runs = _of_this_node(found.node, config) or (_of_another(url, config) if url else ())
        return next((run for run in runs if run.task_id == found.id), None)
    return None


def _of_this_node(node: str, config: Config) -> list[RunningAttempt]:
    """Return what runs on the node of this machine's master, nothing if that is another node."""
    try:
        with master_of(config) as master:
            status: Mapping[str, Any] = master.ask("status")["status"]
    except Failure:  # no master is here
        return []
    is_meant = (status["node"], status["fleet"]) == (node, config.namespace)
    return [
        RunningAttempt(task["task"]["id"], process["pid"], task["task_age_seconds"])
        for process in status["processes"]
        for task in process["tasks"]
        if is_meant
    ]


def _of_another(url: str, config: Config) -> Iterator[RunningAttempt]:
    """Yield what runs on the node at that URL. Raises NodeSilent, and ValueError for an answer that is no status."""
    answer = node_of_url(url, token_of(config.http.token_file)).get("/status.json")
    if answer.status != HTTPStatus.OK:
        return
    for process in json.loads(answer.text)["processes"]:
        for task in process["tasks"]:
            yield RunningAttempt(task["task"]["id"], process["pid"], task["task_age_seconds"])
