"""`rota task show`: where a task stands."""

import dataclasses
from datetime import datetime
from typing import Any

import click

from rota.protocol.names import fault_in_name
from rota_supervisor.cli import command, output
from rota_supervisor.exits import ExitCode, Failure

TASK_ID = click.argument("task_id", metavar="ID")


def check_id(task_id: str) -> None:
    """Check that it is an id. Raises Failure 2."""
    if fault := fault_in_name("id", task_id):
        raise Failure(ExitCode.USAGE, fault)


@click.command(cls=command.RotaCommand)
@TASK_ID
@click.option("--args", "with_args", is_flag=True, help="Show its arguments too, while it lives or is dead.")
def show(*, task_id: str, with_args: bool) -> None:
    """Show where a task stands, or how it ended. Exit 1 when nothing is known of it."""
    from rota.client import status  # noqa: PLC0415 - used here only

    check_id(task_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = status.status_of(task_id, connection.run(store.status(task_id)), args=with_args)
    if found.state is status.State.UNKNOWN:
        raise Failure(ExitCode.NO, f'nothing is known of a task "{task_id}": {found.why}')
    values = {key: _plain(value) for key, value in dataclasses.asdict(found).items() if value not in ("", None)}
    if state.json:
        output.put_json(values)
        return
    epitaph, crash = values.pop("epitaph", {}), values.pop("last_crash", {})
    for key, value in {**values, **epitaph, **{f"last_crash.{key}": crash[key] for key in crash}}.items():
        output.put_field(key, value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
