"""`rota audit`: are all accepted tasks accounted for?"""

import dataclasses

import click

from rota.protocol.store import Store
from rota.server.connection import Connection
from rota_supervisor.cli.confirm import counted
from rota_supervisor.cli.output import put_json, put_table, say
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server import connected

FIRST_CURSOR = LAST_CURSOR = "0"


@click.command(context_settings=HELP_NAMES)
@click.option("--heal", is_flag=True, help="First recount what runs, is delayed or dead in each queue.")
@common_options
def audit(heal: bool) -> None:
    """Check that every accepted task is accounted for: accepted = ended + live. Exit 1 when it is not."""
    state = current_state()
    config = state.load().config
    store = Store(config.namespace)
    with connected(config) as connection:
        if heal:
            say(f"recounted in {counted(recount(connection, store), 'step')}")
        books = connection.run(store.audit())
    figures = {**dataclasses.asdict(books), "missing": books.missing}
    if state.json:
        put_json(figures)
    else:
        put_table(("TASKS", "COUNT"), list(figures.items()), no_color=state.no_color)
    if books.missing:
        raise Failure(ExitCode.NO, f"the books are off by {counted(abs(books.missing), 'task')}")


def recount(connection: Connection, store: Store) -> int:
    """Recount the counts of all queues, a portion a call so that the server serves others between; answers how
    many calls it took. Raises ServerError."""
    steps, cursor = 1, connection.run(store.heal(FIRST_CURSOR))
    while cursor != LAST_CURSOR:
        steps, cursor = steps + 1, connection.run(store.heal(cursor))
    return steps
