"""`rota config print`: the configuration in force, with secrets redacted."""

import click

from rota_supervisor.cli.output import put, put_json
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state, warn_all
from rota_supervisor.config.show import as_toml, as_values, origins_by_path


@click.group(context_settings=HELP_NAMES)
@common_options
def config() -> None:
    """Show the configuration in force."""


@config.command("print", context_settings=HELP_NAMES)
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@common_options
def print_config(origin: bool) -> None:
    """Print the configuration: defaults, file and environment together."""
    state = current_state()
    loaded = state.load()
    warn_all(loaded)
    if state.json:
        values = as_values(loaded.config)
        put_json({"config": values, "origins": origins_by_path(loaded)} if origin else values)
    else:
        put(as_toml(loaded, origins=origin).rstrip())
