"""`rota audit`: are all accepted tasks accounted for?"""

import dataclasses

import click

from rota.protocol.store import Store
from rota_supervisor.cli.confirm import counted
from rota_supervisor.cli.exits import ExitCode, Failure
from rota_supervisor.cli.output import put_json, put_table
from rota_supervisor.cli.server import connected
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state


@click.command(context_settings=HELP_NAMES)
@common_options
def audit() -> None:
    """Check that every accepted task is accounted for: accepted = ended + live. Exit 1 when it is not."""
    state = current_state()
    config = state.load().config
    with connected(config) as connection:
        books = connection.run(Store(config.namespace).audit())
    figures = {**dataclasses.asdict(books), "missing": books.missing}
    if state.json:
        put_json(figures)
    else:
        put_table(("TASKS", "COUNT"), list(figures.items()), no_color=state.no_color)
    if books.missing:
        raise Failure(ExitCode.NO, f"the books are off by {counted(abs(books.missing), 'task')}")
