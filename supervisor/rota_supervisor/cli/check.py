"""`rota check`: everything that would keep a fleet from running, said before it is started."""

import click

from rota.protocol.patterns import is_pattern
from rota_supervisor.cli import command, output
from rota_supervisor.cli.import_probe import probe_imports
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core.change import unknown_overrides, unserved_queues
from rota_supervisor.server import check_server


@click.command(cls=command.RotaCommand)
@click.option("--no-imports", is_flag=True, help="Leave out the modules with the tasks.")
def check(no_imports: bool) -> None:
    """Check the configuration, the server and the imports. Exit 78 for a fault, 69 when Redis does not answer."""
    state = command.current_state()
    config = state.load_with_warnings().config
    tasks: dict[str, str] = {}
    if not no_imports:
        command.warn_without_imports(config)
        tasks = probe_imports(config.imports, config.limits.boot_seconds)
        for name in unknown_overrides(config, tasks):
            output.say_warning(f"tasks.{name}: no imported module defines this task")
        unserved = [str(fault) for fault in unserved_queues(config, tasks)]
        if unserved and config.unserved_queues == "error":
            raise Failure(ExitCode.CONFIG, *unserved)
        for fault in unserved:
            output.say_warning(fault)
    checked = check_server(config, begin=False)
    for warning in checked.warnings:
        output.say_warning(warning)
    queues, server = served_queues(config), str(checked.version)
    patterns = sum(map(is_pattern, queues))
    numbers = {"queue": len(queues) - patterns, **({"pattern": patterns} if patterns else {}), "task": len(tasks)}
    counts = ", ".join(output.counted(number, what) for what, number in numbers.items())
    state.answer({"server": server, "queues": queues, "tasks": tasks}, f"ready to run: {counts}, {server}")
