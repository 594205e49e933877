"""`rota task`: enqueue a task by name, look at one or at many, cancel one."""

import contextlib
import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rota
from rota.client.status import status_of
from rota.durations import positive_milliseconds
from rota.protocol.command import follow
from rota.protocol.replies import CancelWord
from rota.protocol.walks import find_task
from rota_supervisor.cli import command, output
from rota_supervisor.cli.command import DURATION, MOMENT
from rota_supervisor.cli.task_views import TASK_ID, check_id, list_tasks, require_known, show
from rota_supervisor.config.faults import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import tls_options
from rota_supervisor.exits import ExitCode, Failure

if TYPE_CHECKING:
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import Handle

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.client.blocking.handles import Handle


@click.group(cls=command.RotaGroup)
def task() -> None:
    """Enqueue, list, show and cancel tasks."""


task.add_command(show)
task.add_command(list_tasks)


@task.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("args", nargs=-1)
@click.option("--kwargs", default="{}", metavar="JSON", help="Keyword arguments, as a JSON object.")
@click.option("--queue", metavar="QUEUE", help="The queue [that of the task in `imports`].")
@click.option("--delay", type=DURATION, metavar="DURATION", help="Due this long from now: 90, 1m, 2h, 1d.")
@click.option("--at", type=MOMENT, metavar="TIME", help="Due at 2027-01-31T09:00+01:00; now if that is past.")
@click.option("--retries", type=click.IntRange(min=0), metavar="N", help="How often it is tried again [the task's].")
@click.option("--expires", type=DURATION, metavar="DURATION", help="How late it may start [the task's].")
@click.option("--unique", is_flag=True, default=None, help="Only if no live task has these arguments [the task's].")
@click.option("--front", is_flag=True, help="To the head of its lane, now or when it is due.")
@click.option("--id", metavar="ID", help="The task's id; one that is live already stays.")
@click.option("--wait", is_flag=True, help="Wait for its end, and write what it returned.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Wait no longer than this.")
def enqueue(
    *, name: str, args: tuple[str, ...], kwargs: str, wait: bool, timeout: float | None, **options: Any
) -> None:
    """Enqueue the task NAME. Each of ARGS is read as JSON (7, true, '[1, 2]'), and as text where it is none.

    Writes the task's id. Without --queue the task must be defined in the modules of `imports`. With --wait it writes
    what the task returned, as JSON; exit 1 when it has not ended in time, or is dead, cancelled or expired.
    """
    state = command.current_state()
    _refuse_options_among((name, *args))
    config = state.load().config
    keywords = _keywords(kwargs)
    if timeout is not None and not wait:
        raise Failure(ExitCode.USAGE, "--timeout says how long to wait: add --wait")
    if options["queue"] is None:
        _import_tasks(config, name)
    with _client(config) as client:
        handle = _send(client, name, {"args": list(map(_argument, args)), "kwargs": keywords, **options})
        if handle.duplicate:
            output.say(f"a task with the id {handle.id} is live already: it stays, and this one was not added")
        if wait:
            put_end(handle, timeout, as_json=state.json)
        elif state.json:
            output.put_json({"id": handle.id, "duplicate": handle.duplicate})
        else:
            output.put(handle.id)


def _refuse_options_among(words: tuple[str, ...]) -> None:
    """A word such as -5 is an argument; one with two hyphens is an option that there is not. Raises Failure 2."""
    known = [name for option in enqueue.params for name in option.opts if name.startswith("--")]
    if word := next((word for word in words if word.startswith("--")), ""):
        near = suggestion(word.partition("=")[0], known) or ":"
        raise Failure(
            ExitCode.USAGE, f"No such option {word!r}{near} an argument that is a text is written as '\"{word}\"'"
        )


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


def _import_tasks(config: Config, name: str) -> None:
    """Import the tasks, as a worker would, and make sure that this one is among them."""
    from rota.tasks.registry import default_registry  # noqa: PLC0415 - the modules of a person are imported only here
    from rota_supervisor.task_modules import import_all, make_importable  # noqa: PLC0415 - as above

    make_importable([str(Path.cwd())])
    with contextlib.redirect_stdout(sys.stderr):  # what modules print at import is no data of ours
        failure = import_all(config.imports)
    if failure is not None:
        raise Failure(ExitCode.CONFIG, failure.told())
    if name not in default_registry:
        hint = suggestion(name, [each.name for each in default_registry])
        where = f" ({', '.join(config.imports)})" if config.imports else ", of which there are none"
        message = f'no task is named "{name}" in the imports{where}{hint}; to enqueue it for other fleets, say --queue'
        raise Failure(ExitCode.USAGE, message)


def _client(config: Config) -> "Client":
    from rota.client.blocking.client import Client  # noqa: PLC0415 - it takes its time to import

    limit = config.limits.max_payload_kb
    durability, files = config.durability, tls_options(config)
    return Client(config.redis_url, config.namespace, max_payload_kb=limit, durability=durability, **files)


def _send(client: "Client", name: str, options: Mapping[str, Any]) -> "Handle[Any]":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", rota.RotaWarning)
        try:
            handle = client.enqueue(name, **options)
        except (rota.Unavailable, rota.Uncertain) as error:
            raise Failure(ExitCode.UNREACHABLE, str(error)) from None
        except (rota.RotaError, ValueError) as error:
            raise Failure(ExitCode.USAGE, str(error)) from None
    for warning in caught:
        output.say_warning(str(warning.message))
    return handle


@task.command()
@TASK_ID
@click.option(
    "--kill-after",
    type=DURATION,
    metavar="DURATION",
    help="Kill the process of one that runs, when it has not ended so long after it was told.",
)
def cancel(task_id: str, kill_after: float | None) -> None:
    """End a task that waits; have one that runs told to end. Exit 1 when it has ended, is dead or unknown."""
    check_id(task_id)
    state = command.current_state()
    try:
        kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "--kill-after")
    except ValueError as error:
        raise Failure(ExitCode.USAGE, str(error)) from None
    with state.redis() as (_, store, connection):
        word = connection.run(store.cancel(task_id, kill_after_ms))
        found = status_of(task_id, follow(connection.run, find_task(store, task_id)))
    if state.json:
        output.put_json({"id": task_id, "answer": word})
    match word:
        case CancelWord.CANCELLED:
            output.say(f"cancelled {task_id}")
        case CancelWord.RUNNING:
            killed = "" if kill_after is None else f", and killed if it has not ended {kill_after:g} s later"
            output.say(f"{task_id} runs; it is told to end{killed}")
        case CancelWord.DEAD:
            raise Failure(ExitCode.NO, f"{task_id} is dead already: see `rota dead show {task_id}`")
        case CancelWord.UNKNOWN:
            require_known(found)
            raise Failure(ExitCode.NO, f"{task_id} has ended already: it is {found.state}")


def put_end(handle: "Handle[Any]", timeout_seconds: float | None, *, as_json: bool) -> None:
    """Wait for the task and write its result; raises Failure when it came to another end, or to none in time."""
    output.say(f"waiting for {handle.id}")
    told: dict[str, Any] = {"id": handle.id, "duplicate": handle.duplicate}
    try:
        told |= {"state": "done", "result": handle.result(timeout_seconds)}
    except rota.ResultNotStored as error:
        if error.status is None or error.status.state != "done":
            raise Failure(ExitCode.NO, str(error)) from None
        output.say(str(error))
        told["state"] = "done"
    except (rota.Unavailable, rota.Uncertain) as error:
        raise Failure(ExitCode.UNREACHABLE, str(error)) from None
    except (rota.TaskDead, rota.TaskCancelled, rota.TaskExpired, rota.WaitTimeout) as error:
        raise Failure(ExitCode.NO, str(error)) from None
    if as_json:
        output.put_json(told)
    elif "result" in told:
        output.put_json(told["result"])
