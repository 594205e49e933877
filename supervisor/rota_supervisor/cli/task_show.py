"""`rota task show`: where a task stands."""

import dataclasses

import click

from rota.client.status import State, TaskStatus, status_of
from rota.durations import in_words
from rota.protocol.command import follow
from rota.protocol.names import fault_in_name
from rota.protocol.walks import find_task
from rota_supervisor.cli import command, output
from rota_supervisor.cli.task_run import find_run
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import fields_of, task_facts

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
