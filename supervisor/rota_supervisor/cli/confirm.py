"""Asking before something is destroyed."""

import sys

import click

from rota_supervisor.exits import ExitCode, Failure


def confirm(question: str, *, yes: bool) -> None:
    """Ask; go on after `--yes` or a yes. Raises Failure 1 after a no, 2 when there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(ExitCode.USAGE, f"{question} There is no terminal to ask on: say --yes")
    if not click.confirm(question, err=True):
        raise Failure(ExitCode.NO, "nothing was changed")


def counted(count: int, what: str) -> str:
    """A number and its noun: `1 task`, `3 tasks`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
