"""Two commands: `rota task` enqueues, shows, lists and cancels tasks. `rota events` prints stored or live task events,
one per line.

Redis does not store which process runs a task or when the task started. A worker records both in its own slot, which
costs the server nothing. They are read from the master or the HTTP server of the worker's node.
"""

import contextlib
import dataclasses
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

import rota
from rota.client.queues import DEFAULT_LIMIT, QueuedTask, TasksFound, WantedTasks, find
from rota.client.status import TaskStatus, status_of
from rota.durations import in_words, positive_milliseconds
from rota.protocol.keys import fault_in_name, fault_in_queue_name
from rota.protocol.progress import progress_row, progress_summary
from rota.protocol.replies import CancelStatus
from rota.protocol.scans import find_task
from rota.protocol.scripts import follow
from rota.protocol.task_states import LISTED, State, is_place
from rota_supervisor.cli import command, output
from rota_supervisor.cli.command import DURATION, MOMENT, WholeNumber, check_id, require_known
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.cli.node_verbs import token_of
from rota_supervisor.cli.queue_verbs import warn_of_unknown
from rota_supervisor.config.errors import suggestion
from rota_supervisor.config.loader import DEFAULT_FILE, Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import access_options
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of, fields_of, task_facts
from rota_supervisor.node_http import NodeUnreachable, node_of_url

if TYPE_CHECKING:
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import Handle
    from rota.client.event_stream import TaskEvents
    from rota.protocol.nodes import Node
    from rota.protocol.task_states import TaskEvent


_SHOWN_REASON: Final = 60
_NOT_REACHED: Final = {rota.Unavailable: ExitCode.UNREACHABLE, rota.Uncertain: ExitCode.UNREACHABLE}
_NO_RESULT: Final = dict.fromkeys(
    (rota.TaskDead, rota.TaskCancelled, rota.TaskExpired, rota.WaitTimeout, rota.ResultNotStored), ExitCode.NO
)
_NONE: Final = "-"
_MORE: Final = {State.RUNNING: ("OWNER", "PROGRESS"), State.DEAD: ("REASON",)}
Table = tuple[Sequence[str], Sequence[Sequence[object]]]
TASK_ID = click.argument("task_id", metavar="ID")


_NOW: Final = "now"
_POLL_SECONDS: Final = 1.0  # how often the command checks whether the reader of its output has exited
_COLUMNS: Final = ("at", "event", "queue", "task", "task_id")


@click.group(cls=command.RotaGroup)
def task() -> None:
    """Enqueue, list, show and cancel tasks."""


@task.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("args", nargs=-1)
@click.option("--kwargs", default="{}", metavar="JSON", help="Pass these keyword arguments, as a JSON object.")
@click.option("--queue", metavar="QUEUE", help="Enqueue the task into this queue [the declared queue].")
@click.option("--delay", type=DURATION, metavar="DURATION", help="Make the task due after this time: 90, 1m, 2h, 1d.")
@click.option(
    "--at",
    type=MOMENT,
    metavar="TIME",
    help="Make the task due at this time, or now if the time is in the past: 2027-01-31T09:00+01:00.",
)
@click.option("--retries", type=WholeNumber(min=0), metavar="N", help="Retry the task at most N times [as declared].")
@click.option("--expires", type=DURATION, metavar="DURATION", help="Start the task at most this late [as declared].")
@click.option(
    "--unique",
    is_flag=True,
    default=None,
    help="Enqueue the task only if no live task has these arguments [as declared].",
)
@click.option("--front", is_flag=True, help="Put the task at the head of its lane when it is due.")
@click.option("--id", metavar="ID", help="Set the id of the task. If a task with this id is live, enqueue nothing.")
@click.option("--wait", is_flag=True, help="Wait until the task has ended, and write its result.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="With --wait, wait at most this long.")
def enqueue(
    *, name: str, args: tuple[str, ...], kwargs: str, wait: bool, timeout: float | None, **options: Any
) -> None:
    """Enqueue the task NAME, and write its id.

    Each argument is read as JSON (7, true, '[1, 2]'), or as text if it is not valid JSON. Without --queue, the task
    must be defined in the modules of `imports`. With --wait, write the result of the task as JSON instead of its id,
    and exit with 1 if the task does not end in time, or is dead, cancelled or expired.
    """
    state = command.current_state()
    _refuse_options_among((name, *args))
    loaded = state.load()
    config = loaded.config
    keywords = _keywords(kwargs)
    _check_times(options)
    if timeout is not None and not wait:
        raise Failure(ExitCode.USAGE, "--timeout limits the wait: add --wait")
    if options["queue"] is None:
        _import_tasks(loaded, name)
    with _client(config) as client:
        handle = _send(client, name, {"args": list(map(_argument, args)), "kwargs": keywords, **options})
        if handle.duplicate:
            output.print_message(f"a task with the id {handle.id} is already live, so no task was enqueued")
        if wait:
            put_end(handle, timeout, as_json=state.json)
        elif state.json:
            output.put_json({"id": handle.id, "duplicate": handle.duplicate})
        else:
            output.put(handle.id)


def _refuse_options_among(arguments: tuple[str, ...]) -> None:
    """Raise Failure with code 2 if an argument of the task looks like an option that does not exist. A text such as -5
    is an argument, but a text that begins with two hyphens is an option."""
    known = [name for option in enqueue.params for name in option.opts if name.startswith("--")]
    if option := next((text for text in arguments if text.startswith("--")), ""):
        near = suggestion(option.partition("=")[0], known) or ":"
        raise Failure(
            ExitCode.USAGE, f"No such option {option!r}{near} an argument that is a text is written as '\"{option}\"'"
        )


def _check_times(options: Mapping[str, Any]) -> None:
    """Check the time options as the client checks its arguments, but with messages that name the options. Raises
    Failure with code 2.
    """
    both = options["delay"] is not None and options["at"] is not None
    none = options["expires"] is not None and options["expires"] <= 0
    command.check_usage("use either --delay or --at, not both" * both, "--expires must be more than 0 seconds" * none)


def _keywords(text: str) -> dict[str, Any]:
    try:
        keywords = json.loads(text)
    except ValueError as error:
        raise Failure(ExitCode.USAGE, f"--kwargs is not JSON: {error}") from None
    if not isinstance(keywords, dict):
        raise Failure(ExitCode.USAGE, """--kwargs is not a JSON object, such as '{"width": 80}'""")
    return keywords


def _argument(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _import_tasks(loaded: Loaded, name: str) -> None:
    """Import the tasks as a worker would, and check that the task NAME is among them."""
    from rota.tasks.registry import default_registry  # noqa: PLC0415 - the user's modules are imported only here
    from rota_supervisor.task_modules import import_all, make_importable  # noqa: PLC0415 - as in the line above

    imports = loaded.config.imports
    make_importable([str(Path.cwd())])
    with contextlib.redirect_stdout(sys.stderr):  # What modules print while they are imported is not data.
        failure = import_all(imports)
    if failure is not None:
        raise Failure(ExitCode.CONFIG, failure.message())
    if name not in default_registry:
        near = suggestion(name, [each.name for each in default_registry])
        raise Failure(ExitCode.USAGE, _not_imported(name, near, loaded))


def _not_imported(name: str, near: str, loaded: Loaded) -> str:
    imports = loaded.config.imports
    if imports:
        named = f'no task is named "{name}" in the imports ({", ".join(imports)})'
        return f"{named}{near or ':'} {'T' if near else 't'}o enqueue it for another fleet, use --queue QUEUE"
    if loaded.content is None:
        why = f"there is no {DEFAULT_FILE} in this folder"
        advice = "use -c FILE, or --queue QUEUE"
    else:
        why = "imports names no module"
        advice = "use --queue QUEUE"
    return f'{why}, so no task is known: {advice} to enqueue "{name}" for a fleet that has it'


def _client(config: Config) -> "Client":
    from rota.client.blocking.client import Client  # noqa: PLC0415 - its import is slow

    limit = config.limits.max_payload_kb
    durability = config.durability
    files = access_options(config)
    return Client(config.redis_url, config.namespace, max_payload_kb=limit, durability=durability, **files)


def _send(client: "Client", name: str, options: Mapping[str, Any]) -> "Handle[Any]":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", rota.RotaWarning)
        with command.failing({**_NOT_REACHED, rota.RotaError: ExitCode.USAGE, ValueError: ExitCode.USAGE}):
            try:
                handle = client.enqueue(name, **options)
            except rota.Unavailable as error:
                hints = command.current_state().hints_of_folder()
                raise Failure(ExitCode.UNREACHABLE, str(error), *hints) from None
    for warning in caught:
        output.print_warning(str(warning.message))
    return handle


@task.command()
@TASK_ID
@click.option(
    "--kill-after",
    type=DURATION,
    metavar="DURATION",
    help="Kill the worker of a running task if the task has not ended this long after the cancellation.",
)
def cancel(task_id: str, kill_after: float | None) -> None:
    """Cancel a task. A waiting task ends at once. In a running task, rota.Cancelled is raised.

    Exit with 1 if the task has already ended, is dead or is unknown.
    """
    check_id(task_id)
    state = command.current_state()
    with command.failing({ValueError: ExitCode.USAGE}):
        kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "--kill-after")
    with state.redis() as (_, store, connection):
        status = connection.run(store.cancel(task_id, kill_after_ms))
        found = status_of(task_id, follow(connection.run, find_task(store, task_id)))
    if state.json:
        output.put_json({"id": task_id, "answer": status})
    match status:
        case CancelStatus.CANCELLED:
            output.print_message(f"cancelled {task_id}")
        case CancelStatus.RUNNING:
            killed = "" if kill_after is None else f", and it is killed if it has not ended {kill_after:g} s later"
            output.print_message(f"{task_id} is running; its cancellation was requested{killed}")
        case CancelStatus.DEAD:
            raise Failure(ExitCode.NO, f"{task_id} is already dead: see `rota dead show {task_id}`")
        case CancelStatus.UNKNOWN:
            require_known(found)
            raise Failure(ExitCode.NO, f"{task_id} has already ended: it is {found.state}")


def put_end(handle: "Handle[Any]", timeout_seconds: float | None, *, as_json: bool) -> None:
    """Wait for the task to end and write its result. Raises Failure if the task does not succeed in time."""
    output.print_message(f"waiting for {handle.id}")
    fields: dict[str, Any] = {"id": handle.id, "duplicate": handle.duplicate}
    with command.failing({**_NOT_REACHED, **_NO_RESULT}):
        try:
            fields |= {"state": "done", "result": handle.result(timeout_seconds)}
        except rota.ResultNotStored as error:
            if error.status is None or error.status.state != "done":
                raise
            output.print_message(str(error))
            fields["state"] = "done"
    if as_json:
        output.put_json(fields)
    elif "result" in fields:
        output.put_json(fields["result"])


@task.command("ls")
@click.argument("queue", required=False)
@click.option(
    "--state",
    default=State.READY.value,
    show_default=True,
    type=click.Choice([state.value for state in LISTED]),
    help="List tasks in this state.",
)
@click.option("--task", default="", metavar="NAME", help="Show only tasks with this name.")
@click.option(
    "--limit", default=DEFAULT_LIMIT, show_default=True, type=WholeNumber(min=1), help="Show at most this many tasks."
)
def list_tasks(*, queue: str | None, state: str, task: str, limit: int) -> None:
    """List the first tasks of QUEUE, or of all queues.

    The tasks are the ready tasks, or with --state the scheduled, running or dead tasks. The command reads only as many
    tasks as it shows. If it skips tasks that do not match, it stops after 10,000 tasks and reports this.
    """
    command.check_usage(queue and fault_in_queue_name(queue), task and fault_in_name("task name", task))
    context = command.current_state()
    wanted = WantedTasks(State(state), queue or "", task, limit)
    with context.redis() as (config, store, connection):
        found = follow(connection.run, find(store, wanted))
        if queue and not found.tasks:
            warn_of_unknown((queue,), config, store, connection)
    header, rows = table_of(wanted.state, found.tasks)
    context.table(list(map(facts_of, found.tasks)), header, rows)
    if text := rest_text(found, limit) if found.tasks else _none_text(wanted):
        output.print_message(text)


def table_of(state: State, tasks: Sequence[QueuedTask]) -> Table:
    """Return the header and the rows of the table of tasks. The age column shows the time since a task entered its lane
    or became dead.
    """
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
        return [task.owner, progress_summary(progress_row(task.progress)) or _NONE]
    if task.state is State.DEAD:
        death = task.death
        why = ": ".join(filter(None, (death.reason, death.error))) if death else ""
        return [output.cut(why, _SHOWN_REASON)]
    return []


def _none_text(wanted: WantedTasks) -> str:
    where = f' in queue "{wanted.queue}"' if wanted.queue else ""
    what = f' "{wanted.task}"' if wanted.task else ""
    return f"no task{what} is {wanted.state}{where}"


def rest_text(found: TasksFound, limit: int) -> str:
    """Return a text that reports that there are more tasks than were shown, or "" if all tasks were shown."""
    if not found.more:
        return ""
    if len(found.tasks) < limit:
        return f"searched {output.counted(found.searched, 'task')} and stopped: there may be more tasks"
    return f"there are more tasks: these are the first {limit}, see --limit"


# One task


@task.command()
@TASK_ID
@click.option("--args", "with_args", is_flag=True, help="Also show the arguments of the task, if it is live or dead.")
def show(*, task_id: str, with_args: bool) -> None:
    """Show the state of a task, or how it ended. Exit with 1 if nothing is known about it."""
    check_id(task_id)
    state = command.current_state()
    with state.redis() as (config, store, connection):
        found = status_of(task_id, follow(connection.run, find_task(store, task_id)), args=with_args)
        nodes = connection.run(store.nodes()) if found.state is State.RUNNING else []
    require_known(found)
    run = find_run(found, config, nodes) if found.state is State.RUNNING else None
    if run is not None:
        found = dataclasses.replace(found, started_at=run.started_at, pid=run.pid)
    seconds, age = ({"running_seconds": run.seconds}, {"running_for": in_words(run.seconds)}) if run else ({}, {})
    fields = fields_of(found)
    timeline = {"timeline": fields.pop("timeline")}
    state.fields(task_facts(found) | seconds, {**fields, **age, **timeline})


# Where a task runs, and since when


class RunningAttempt(NamedTuple):
    """A running attempt: the task, the pid of its worker, and the number of seconds that it has run."""

    task_id: str
    pid: int
    seconds: float

    @property
    def started_at(self) -> datetime:
        """The time when the attempt started, by the clock of this machine."""
        return datetime.now(UTC) - timedelta(seconds=self.seconds)


def find_run(found: TaskStatus, config: Config, nodes: Iterable["Node"]) -> RunningAttempt | None:
    """Return a task's running attempt, or None if neither the master on this machine nor the task's node reports it."""
    url = next((node.report.url for node in nodes if node.name == found.node), None)
    with contextlib.suppress(NodeUnreachable, ValueError):
        runs = _of_this_node(found.node, config) or (_of_another(url, config) if url else ())
        return next((run for run in runs if run.task_id == found.id), None)
    return None


def _of_this_node(node: str, config: Config) -> list[RunningAttempt]:
    """Return the running attempts on `node`, or [] if the master on this machine belongs to another node."""
    try:
        with master_of(config) as master:
            status: Mapping[str, Any] = master.request("status")["status"]
    except Failure:  # There is no master here.
        return []
    is_meant = (status["node"], status["fleet"]) == (node, config.namespace)
    return [
        RunningAttempt(task["task"]["id"], process["pid"], task["task_age_seconds"])
        for process in status["processes"]
        for task in process["tasks"]
        if is_meant
    ]


def _of_another(url: str, config: Config) -> Iterator[RunningAttempt]:
    """Yield the running attempts on the node at this URL. Raises NodeUnreachable, or ValueError for a bad status."""
    response = node_of_url(url, token_of(config.http.token_file)).get("/status.json")
    if response.status != HTTPStatus.OK:
        return
    for process in json.loads(response.text)["processes"]:
        for task in process["tasks"]:
            yield RunningAttempt(task["task"]["id"], process["pid"], task["task_age_seconds"])


# Task events


@click.command(cls=command.RotaCommand)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@click.option(
    "--after",
    default="0",
    metavar="ID",
    help='Show only the events after the one with this id. With "now", show only new events.',
)
@click.option("--queue", help="Show only events of this queue.")
@click.option("--task", help="Show only events of tasks with this name.")
def events(*, follow: bool, after: str, queue: str | None, task: str | None) -> None:
    """Show the stored task events, the oldest first. Exit with 1 if there are none and no master enables events."""
    state = command.current_state()
    config = state.load_to_reach()
    if not (after == _NOW or is_place(after)):
        known = f'the id of an event, "0" for all that are kept, or "{_NOW}"'
        raise Failure(ExitCode.USAGE, f"--after must be {known}, got {after!r}")
    position = None if after == _NOW else after
    with rota.Client(config.redis_url, config.namespace, **access_options(config)) as client:
        with command.failing(
            {
                rota.EventsOff: ExitCode.NO,
                rota.Unavailable: ExitCode.UNREACHABLE,
                ValueError: ExitCode.USAGE,
            }
        ):
            reader = client.events(position, queue=queue, task=task, timeout=_POLL_SECONDS if follow else 0)
        for event in _followed(reader) if follow else _kept(reader):
            output.put_json(_values_of(event)) if state.json else output.put(_line(event))
            sys.stdout.flush()


def _kept(reader: "TaskEvents") -> Iterator["TaskEvent"]:
    while True:
        try:
            yield from reader
        except rota.EventsLost as error:
            output.print_warning(str(error))
        except rota.Unavailable as error:
            raise Failure(ExitCode.UNREACHABLE, str(error)) from None
        else:
            return


def _followed(reader: "TaskEvents") -> Iterator["TaskEvent"]:
    """Yield events until the reader of this command's output exits. Each outage of the server is reported only once."""
    is_away = False
    while not output.is_reader_gone(sys.stdout):
        try:
            for event in reader:
                is_away = False
                yield event
        except rota.EventsLost as error:
            output.print_warning(str(error))
        except rota.Unavailable as error:
            if not is_away:
                output.print_warning(f"{error}: waiting for it")
            is_away = True


def _values_of(event: "TaskEvent") -> dict[str, Any]:
    values = dataclasses.asdict(event).items()
    return {key: _plain(value) for key, value in values if value not in ("", None)}


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def _line(event: "TaskEvent") -> str:
    values = _values_of(event)
    at, name, *where = (str(values.pop(column, "-")) for column in _COLUMNS)
    rest = (f"{key}={value}" for key, value in values.items() if key != "id")
    return " ".join([at, f"{name:<9}", *where, *rest])
