"""`rota check`: everything that would keep a fleet from running, said before it is started."""

from collections.abc import Iterator

import click

from rota.protocol.keys import Keys
from rota.server.connection import Connection
from rota_supervisor.cli.confirm import counted
from rota_supervisor.cli.exits import ExitCode, Failure
from rota_supervisor.cli.import_probe import probe_imports
from rota_supervisor.cli.output import put_json, say, say_warning
from rota_supervisor.cli.server import connected
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state, warn_all, warn_without_imports
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues
from rota_supervisor.master.reload import unknown_overrides, unserved_queues
from rota_supervisor.server_check import fault_of_protocol, faults_of_server, parse_info, version_of

VERSION_FIELD = "protocol"


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
    server = check_server(config)
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


def check_server(config: Config) -> str:
    """Check that the server can be used; answers what it is. Raises Failure 69 or 78."""
    with connected(config) as connection:
        info = parse_info(_text(connection.execute("INFO")))
        faults = [*faults_of_server(info), *_faults_of_namespace(connection, config)]
    if faults:
        raise Failure(ExitCode.CONFIG, *faults)
    return str(version_of(info))


def _faults_of_namespace(connection: Connection, config: Config) -> Iterator[str]:
    version = connection.execute("HGET", Keys(config.namespace).meta, VERSION_FIELD)
    if version is not None:
        fault = fault_of_protocol(int(version), config.namespace)
        if fault:
            yield fault


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
