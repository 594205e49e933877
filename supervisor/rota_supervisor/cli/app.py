"""The command `rota`: its commands by name, the exit codes of errors, and the shell completion and manual page, which
are generated from the commands."""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from keyword import iskeyword

import click
from click.shell_completion import get_completion_class

from rota_supervisor.cli import command, output
from rota_supervisor.config.errors import suggestion
from rota_supervisor.exits import MEANINGS, ExitCode, Failure

# The module of each command, and the summary of the command for `rota --help`. The summaries are listed here so that
# the help imports none of the modules and appears quickly.
COMMANDS = {
    "init": ("config_verbs", "Write a commented rota.toml and tasks.py."),
    "run": ("run_verbs", "Run a fleet: the master, workers, pollers and the exporter."),
    "demo": ("demo_verb", "Run a fleet, kill a worker, and check that no task is lost."),
    "check": ("config_verbs", "Check the configuration, the server and the imports."),
    "doctor": ("doctor_verb", "Examine the configuration, the machine, the server and the fleet."),
    "config": ("config_verbs", "Show the configuration in force."),
    "acl": ("acl_verb", "Print the Redis users of the fleet, its applications and its operators."),
    "exporter": ("run_verbs", "Serve metrics and the status page of a fleet that runs elsewhere."),
    "status": ("status_verb", "Show the pools and processes of this node's master."),
    "top": ("node_verbs", "Show the fleet in a terminal, once a second."),
    "scale": ("master_verbs", "Set or change the number of workers of a pool."),
    "explain": ("explain_verbs", "Explain how many workers a pool with a range gets."),
    "reload": ("master_verbs", "Reload the configuration of the master, as SIGHUP does."),
    "restart": ("master_verbs", "Replace all workers to run freshly imported code."),
    "quiet": ("master_verbs", "Stop the workers from claiming more tasks."),
    "resume": ("master_verbs", "Let the workers claim tasks again."),
    "stop": ("master_verbs", "Drain the fleet and stop it."),
    "health": ("node_verbs", "Check whether the fleet is alive or ready, for probes."),
    "queue": ("queue_verbs", "List, explain, pause, resume and purge queues."),
    "task": ("task_verbs", "Enqueue, list, show and cancel tasks."),
    "group": ("group_verbs", "List, show, close and cancel groups."),
    "cron": ("cron_verbs", "List, show, run, pause and resume schedules."),
    "events": ("task_verbs", "Show task events; with -f, as they happen."),
    "dead": ("dead_verbs", "List, show, revive and purge dead tasks."),
    "completion": ("app", "Write the completion script for a shell."),
    "man": ("app", "Write the manual page."),
    "export": ("backup_verbs", "Write all tasks, schedules, groups and settings to a file."),
    "import": ("backup_verbs", "Write an exported file into an empty namespace, and check it."),
    "audit": ("audit_verb", "Check that every accepted task is accounted for and can be found."),
}
INTERRUPTED = 130  # the exit code with which a shell reports that Ctrl-C ended a process


# Each command of Rota, with the names under which users of other systems may look for it.
_FOREIGN_COMMANDS = {
    "run": "worker workers work start server serve up",
    "status": "ps info inspect stats list",
    "top": "htop dashboard ui web",
    "task enqueue": "enqueue call send push submit",
    "task cancel": "cancel revoke kill",
    "task show": "show result get",
    "queue ls": "ls queues",
    "queue pause": "pause",
    "queue purge": "purge flush empty",
    "dead ls": "failed failures dlq",
    "dead revive": "retry requeue revive",
    "cron ls": "beat scheduler schedule schedules",
    "events -f": "logs log monitor tail watch",
    "health": "ping healthcheck",
    "doctor": "diagnose diagnostics troubleshoot bundle",
    "check": "validate lint test",
    "export": "backup dump save",
    "import": "restore load",
    "--help": "help",
    "--version": "version",
}
# Options of other systems. Each row has the command of Rota with which users may write them ("" for any command), the
# options, and advice.
_FOREIGN_OPTIONS = (
    ("run", "-A --app", "Name only the modules that define the tasks, as in `rota run shop.tasks`"),
    ("run", "--concurrency --processes --workers --num-workers", "Set the number of workers with -w 4"),
    ("run", "-B --beat", "`rota run` also enqueues the tasks of the schedules"),
    (
        "health",
        "--url",
        "This command queries the address in [http] listen; to query another node, use `rota top --once --url URL`",
    ),
    ("task enqueue", "--countdown", "Write --delay"),
    ("stop", "--force", "Write --now"),
    ("init", "--force", "`rota init` does not overwrite files: move the existing ones away first"),
    ("queue purge", "--force", "Write --yes"),
    ("dead purge", "--force", "Write --yes"),
    ("", "-b -u --broker --url --redis-url", "Set the server with redis_url in rota.toml, or with ROTA_REDIS_URL"),
    ("", "-l --loglevel --log-level", 'Set the log level in rota.toml: [log] level = "debug"'),
)

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_ROTA_COMPLETE"  # the environment variable with which click's completion scripts call `rota`


class _Rota(command.RotaGroup):
    """The group of all commands. Only the module of the called command is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's interface
        if cmd_name not in COMMANDS:
            return None
        function = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        found = getattr(import_module(f"rota_supervisor.cli.{COMMANDS[cmd_name][0]}"), function)
        assert isinstance(found, click.Command)
        return found

    def advice(self, name: str) -> str:
        meant = next((ours for ours, names in _FOREIGN_COMMANDS.items() if name in names.split()), "")
        if meant.startswith("--"):
            return f": see `rota {meant}`"
        return f": see `rota {meant} --help`" if meant else super().advice(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's interface
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(cls=_Rota)
@click.version_option(package_name="rota", prog_name="rota", message="%(prog)s %(version)s")
def app() -> None:
    """Run and control a fleet of workers over Redis or Valkey."""


def run_app(arguments: Sequence[str]) -> int:
    """Run a command line, and return the exit code."""
    state = command.CliState()
    state.no_color |= "--no-color" in arguments  # set before parsing, because parsing can fail
    state.json = "--json" in arguments
    messages: Sequence[str] = ()
    try:
        code = app.main(list(arguments), prog_name="rota", obj=state, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.CLEAN
    except Failure as failure:
        code = failure.code
        messages = failure.messages
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "rota"
        code = ExitCode.USAGE
        message = f"{_error_text(error)}{_advice(error, path)}"
        messages = [message if "see `" in message else f"{message} (see `{path} --help`)"]
    except click.ClickException as error:
        code = ExitCode.USAGE
        messages = [error.format_message()]
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (output.ReaderGoneError, BrokenPipeError):  # BrokenPipeError is raised when a stream is flushed.
        output.discard(sys.stdout)
        return ExitCode.CLEAN
    except OSError as error:
        if not output.is_of_output(error):
            raise
        output.discard(sys.stdout)
        code = ExitCode.OUTPUT
        messages = [f"the output cannot be written: {error.strerror}"]
    if not state.is_master or output.has_room(sys.stderr):
        output.print_errors(code, messages, as_json=state.json, no_color=state.no_color)
    return code


def _error_text(error: click.UsageError) -> str:
    if isinstance(error, click.MissingParameter) and error.param and isinstance(error.param.type, click.Choice):
        *first, last = map(str, error.param.type.choices)
        return f"Missing argument {str(error.param.name).upper()}: {', '.join(first)} or {last}"
    if isinstance(error, click.NoSuchOption):
        return f"No such option {error.option_name!r}{suggestion(error.option_name, error.possibilities or ())}"
    return error.format_message().removesuffix(".")


def _advice(error: click.UsageError, path: str) -> str:
    """Return advice for a user who typed an option of another system. Return "" if there is no advice for the
    option."""
    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    meant = path.removeprefix("rota ")
    found = (advice for of, names, advice in _FOREIGN_OPTIONS if of in ("", meant) and name in names.split())
    return "".join(f". {advice}" for advice in list(found)[:1])


@click.command(cls=command.RotaCommand)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Write the completion script for a shell.

    The script completes commands, options and their values. Enable it with eval "$(rota completion bash)".
    """
    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    assert found is not None
    try:
        output.put(found(root.command, {}, "rota", _VARIABLE).source().rstrip())
    except RuntimeError as error:
        raise Failure(ExitCode.USAGE, f"{shell}: {error}") from None


@click.command(cls=command.RotaCommand)
def man() -> None:
    """Write the manual page. To read it, run `rota man > rota.1`, then `man ./rota.1`."""
    root = click.get_current_context().find_root()
    output.put("\n".join(_page(root)))


def _page(root: click.Context) -> Iterator[str]:
    yield from ('.TH ROTA 1 "" "rota" "Rota"', ".SH NAME", f"rota \\- {_text(root.command.help)}")
    yield from (".SH SYNOPSIS", ".B rota", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH COMMANDS")
    for context in _commands(root):
        yield from _section(context)
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from (".TP", f".B {code.value}", _text(meaning))


def _commands(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command of a group and its subgroups."""
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        found = context.command.get_command(context, name)
        if found is None or found.hidden:
            continue
        inner = click.Context(found, info_name=name, parent=context)
        if isinstance(found, click.Group):
            yield from _commands(inner)
        else:
            yield inner


def _section(context: click.Context) -> Iterator[str]:
    yield from (".SS " + _text(context.get_usage().removeprefix("Usage: ")), _text(context.command.help))
    for parameter in context.command.get_params(context):
        if record := parameter.get_help_record(context):
            yield from (".TP", f".B {_text(record[0])}", _text(record[1]))


def _text(text: str | None) -> str:
    """Escape a text for troff, so that no line is read as a request and no hyphen is shown as a minus sign."""
    flat = " ".join((text or "").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat
