"""`rota check`: everything that would keep a fleet from running, said before it is started."""

import click

from rota_supervisor.cli.confirm import counted
from rota_supervisor.cli.import_probe import probe_imports
from rota_supervisor.cli.output import put_json, say, say_warning
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state, warn_all, warn_without_imports
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core.change import unknown_overrides, unserved_queues
from rota_supervisor.server import check_server


@click.command(context_settings=HELP_NAMES)
@click.option("--no-imports", is_flag=True, help="Leave out the modules with the tasks.")
@common_options
def check(no_imports: bool) -> None:
    """Check the configuration, the server and the imports. Exit 78 for a fault, 69 when Redis does not answer."""
    state = current_state()
    loaded = state.load()
    warn_all(loaded)
    config = loaded.config
    tasks: dict[str, str] = {}
    if not no_imports:
        warn_without_imports(loaded)
        tasks = dict(probe_imports(config.imports, config.limits.boot_seconds).queues)
        check_tasks(config, tasks)
    checked = check_server(config, begin=False)
    for warning in checked.warnings:
        say_warning(warning)
    server = str(checked.version)
    if state.json:
        put_json({"server": server, "queues": served_queues(config), "tasks": tasks})
    else:
        queues = counted(len(served_queues(config)), "queue")
        say(f"ready to run: {queues}, {counted(len(tasks), 'task')}, {server}")


def check_tasks(config: Config, tasks: dict[str, str]) -> None:
    """Check the tasks, each with its queue, against the configuration. Raises Failure 78 unless told to warn."""
    for name in unknown_overrides(config, tasks):
        say_warning(f"tasks.{name}: no imported module defines this task")
    unserved = [str(fault) for fault in unserved_queues(config, tasks)]
    if unserved and config.unserved_queues == "error":
        raise Failure(ExitCode.CONFIG, *unserved)
    for fault in unserved:
        say_warning(fault)
