"""The command `rota`: its commands by name, and how each way of ending becomes an exit code."""

import os
import sys
from collections.abc import Sequence

import click

from rota_supervisor.cli.lazy import CommandEntry, LazyGroup
from rota_supervisor.cli.output import ReaderGoneError, has_room, say_error
from rota_supervisor.cli.state import HELP_NAMES, CliState, common_options
from rota_supervisor.exits import ExitCode, Failure

_CLI = "rota_supervisor.cli"
COMMANDS = {
    "init": CommandEntry(f"{_CLI}.init:init", "Write a commented rota.toml and tasks.py."),
    "run": CommandEntry(f"{_CLI}.run:run", "Run a fleet: master, workers, pollers, exporter."),
    "demo": CommandEntry(f"{_CLI}.demo:demo", "Run a fleet, kill a worker, and check that nothing is lost."),
    "check": CommandEntry(f"{_CLI}.check:check", "Check the configuration, the server and the imports."),
    "config": CommandEntry(f"{_CLI}.config:config", "Show the configuration in force."),
    "status": CommandEntry(f"{_CLI}.master:status", "Show what this node's master supervises."),
    "scale": CommandEntry(f"{_CLI}.master:scale", "Give a pool another number of workers."),
    "reload": CommandEntry(f"{_CLI}.master:reload", "Have the master load its configuration again, as HUP does."),
    "restart": CommandEntry(f"{_CLI}.master:restart", "Replace every worker by one with freshly imported code."),
    "quiet": CommandEntry(f"{_CLI}.master:quiet", "Have the workers claim nothing more, and stay."),
    "resume": CommandEntry(f"{_CLI}.master:resume", "Have the workers claim again."),
    "stop": CommandEntry(f"{_CLI}.master:stop", "Drain the fleet and stop it."),
    "health": CommandEntry(f"{_CLI}.health:health", "Ask whether the fleet is alive or ready, for probes."),
    "queue": CommandEntry(f"{_CLI}.queue:queue", "List, pause, resume and purge queues."),
    "task": CommandEntry(f"{_CLI}.task:task", "Enqueue, show and cancel a task."),
    "dead": CommandEntry(f"{_CLI}.dead:dead", "List, show, revive and purge dead tasks."),
    "audit": CommandEntry(f"{_CLI}.audit:audit", "Check that every accepted task is accounted for."),
}
INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended


@click.command(cls=LazyGroup, entries=COMMANDS, context_settings=HELP_NAMES)
@click.version_option(package_name="rota", prog_name="rota", message="%(prog)s %(version)s")
@common_options
def app() -> None:
    """A fleet of workers over Redis or Valkey."""


def run_app(arguments: Sequence[str]) -> int:
    """Run a command line; answers the exit code."""
    state = CliState()
    state.no_color |= "--no-color" in arguments  # also for faults that are found while the arguments are read
    try:
        code = app.main(list(arguments), prog_name="rota", obj=state, standalone_mode=False)
        sys.stdout.flush()
    except Failure as failure:
        return _failed(failure, state)
    except click.UsageError as error:
        return _misused(error, state)
    except click.ClickException as error:
        say_error(error.format_message(), no_color=state.no_color)
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (ReaderGoneError, BrokenPipeError):  # the second one from the flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.CLEAN
    return code if isinstance(code, int) else ExitCode.CLEAN


def _failed(failure: Failure, state: CliState) -> int:
    for message in failure.messages:
        if not state.is_master or has_room(sys.stderr):
            say_error(message, no_color=state.no_color)
    return failure.code


def _misused(error: click.UsageError, state: CliState) -> int:
    path = error.ctx.command_path if error.ctx else "rota"
    say_error(f"{error.format_message()} (see `{path} --help`)", no_color=state.no_color)
    return ExitCode.USAGE
