"""`rota completion` and `rota man`: what shells and `man` know of the commands, made from them."""

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from rota_supervisor.cli import command, output
from rota_supervisor.exits import MEANINGS, ExitCode, Failure

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_ROTA_COMPLETE"  # as click names it


@click.command(cls=command.RotaCommand)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Write what completes commands, options and their values in SHELL: eval "$(rota completion bash)"."""
    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    assert found is not None
    try:
        output.put(found(root.command, {}, "rota", _VARIABLE).source().rstrip())
    except RuntimeError as error:
        raise Failure(ExitCode.USAGE, f"{shell}: {error}") from None


@click.command(cls=command.RotaCommand)
def man() -> None:
    """Write the manual page: rota man > rota.1, and man ./rota.1."""
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
    """The commands of a group and of the groups in it, each as if it had been called."""
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


def _text(words: str | None) -> str:
    """As troff takes it: no line may begin with what is a request, and a hyphen is no minus."""
    flat = " ".join((words or "").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat
