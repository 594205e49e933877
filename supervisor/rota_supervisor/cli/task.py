"""`rota task`: enqueue a task by name, look at one, cancel one."""

import contextlib
import dataclasses
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from rota.protocol.names import fault_in_name
from rota.protocol.replies import CancelWord
from rota.protocol.store import Store
from rota_supervisor.cli.output import put, put_json, say, say_warning
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state
from rota_supervisor.config.faults import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server import connected

TASK_ID = click.argument("task_id", metavar="ID")


@click.group(context_settings=HELP_NAMES)
@common_options
def task() -> None:
    """Enqueue, show and cancel a task."""


@task.command(context_settings={**HELP_NAMES, "ignore_unknown_options": True})
@click.argument("name")
@click.argument("args", nargs=-1)
@click.option("--kwargs", default="{}", metavar="JSON", help="Keyword arguments, as a JSON object.")
@click.option("--queue", "queue_name", metavar="QUEUE", help="The queue [that of the task in `imports`].")
@click.option("--delay", type=click.FloatRange(min=0), metavar="SECONDS", help="Due this long from now.")
@click.option("--id", "task_id", metavar="ID", help="The task's id; one that is live already stays.")
@common_options
def enqueue(
    *, name: str, args: tuple[str, ...], kwargs: str, queue_name: str | None, delay: float | None, task_id: str | None
) -> None:
    """Enqueue the task NAME. Each of ARGS is read as JSON (7, true, '[1, 2]'), and as text where it is none.

    Writes the task's id. Without --queue the task must be defined in the modules of `imports`.
    """
    state = current_state()
    config = state.load().config
    keywords = _keywords(kwargs)
    if queue_name is None:
        _import_tasks(config, name)
    options = {"queue": queue_name, "delay": delay, "id": task_id}
    handle_id, duplicate = _send(config, name, [_argument(text) for text in args], keywords, options)
    if duplicate:
        say(f"a task with the id {handle_id} is live already: it stays, and this one was not added")
    if state.json:
        put_json({"id": handle_id, "duplicate": duplicate})
    else:
        put(handle_id)


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
    from rota.registry import default_registry  # noqa: PLC0415 - the modules of a person are imported only here
    from rota_supervisor.importing import import_all, make_importable  # noqa: PLC0415 - as above

    make_importable([str(Path.cwd())])
    with contextlib.redirect_stdout(sys.stderr):  # what modules print at import is no data of ours
        failure = import_all(config.imports)
    if failure is not None:
        raise Failure(
            ExitCode.CONFIG, f"the module {failure.module} does not import: {failure.error} ({failure.where})"
        )
    if name not in default_registry:
        known = [each.name for each in default_registry]
        raise Failure(
            ExitCode.USAGE,
            f'no task is named "{name}" in {_listed(config.imports)}{suggestion(name, known)}; '
            "to enqueue it for other fleets, say --queue",
        )


def _listed(imports: Sequence[str]) -> str:
    return f"the imports ({', '.join(imports)})" if imports else "the imports, of which there are none"


def _send(
    config: Config, name: str, args: list[Any], kwargs: Mapping[str, Any], options: dict[str, Any]
) -> tuple[str, bool]:
    import rota  # noqa: PLC0415 - the client imports redis-py, which takes its time
    from rota.client.client import Client  # noqa: PLC0415 - as above

    with (
        warnings.catch_warnings(record=True) as caught,
        Client(
            config.redis_url,
            config.namespace,
            max_payload_kb=config.limits.max_payload_kb,
            durability=config.durability,
        ) as client,
    ):
        warnings.simplefilter("always", rota.UnservedQueue)
        try:
            handle = client.enqueue(name, args=args, kwargs=kwargs, **options)
        except (rota.Unavailable, rota.Uncertain) as error:
            raise Failure(ExitCode.UNREACHABLE, str(error)) from None
        except (rota.RotaError, ValueError) as error:
            raise Failure(ExitCode.USAGE, str(error)) from None
    for warning in caught:
        say_warning(str(warning.message))
    return handle.id, handle.duplicate


@task.command(context_settings=HELP_NAMES)
@TASK_ID
@common_options
def show(task_id: str) -> None:
    """Show where a task stands. Exit 1 when nothing is known of it."""
    from rota.client.status import State as TaskPlace  # noqa: PLC0415 - with `status_of`, used here only
    from rota.client.status import status_of  # noqa: PLC0415 - as above

    _check_id(task_id)
    state = current_state()
    config = state.load().config
    with connected(config) as connection:
        found = status_of(task_id, connection.run(Store(config.namespace).status(task_id)))
    if found.state is TaskPlace.UNKNOWN:
        raise Failure(ExitCode.NO, f'nothing is known of a task "{task_id}": never enqueued, or forgotten since')
    values = {key: _plain(value) for key, value in dataclasses.asdict(found).items() if value not in ("", None)}
    if state.json:
        put_json(values)
        return
    from rota_supervisor.cli.dead import put_field  # noqa: PLC0415 - the text form only

    epitaph, crash = values.pop("epitaph", {}), values.pop("last_crash", {})
    for key, value in {**values, **epitaph, **{f"last_crash.{key}": crash[key] for key in crash}}.items():
        put_field(key, value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@task.command(context_settings=HELP_NAMES)
@TASK_ID
@common_options
def cancel(task_id: str) -> None:
    """End a task that waits; ask for the end of one that runs. Exit 1 when it is dead or unknown."""
    _check_id(task_id)
    state = current_state()
    config = state.load().config
    with connected(config) as connection:
        word = connection.run(Store(config.namespace).cancel(task_id))
    if state.json:
        put_json({"id": task_id, "answer": word})
    match word:
        case CancelWord.CANCELLED:
            say(f"cancelled {task_id}")
        case CancelWord.RUNNING:
            say(f"{task_id} runs; it is asked to end")
        case CancelWord.DEAD:
            raise Failure(ExitCode.NO, f"{task_id} is dead already: see `rota dead show {task_id}`")
        case CancelWord.UNKNOWN:
            raise Failure(ExitCode.NO, f'nothing is known of a task "{task_id}"')


def _check_id(task_id: str) -> None:
    if fault := fault_in_name("id", task_id):
        raise Failure(ExitCode.USAGE, fault)
