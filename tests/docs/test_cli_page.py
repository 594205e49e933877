"""docs/cli.md matches the command line."""

import re
import signal

import click

from rota_supervisor.cli.app import app
from rota_supervisor.exits import MEANINGS
from rota_supervisor.master.shell import master_signals
from support.prose import ROOT

PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def commands(group: click.Group, prefix: str = "rota") -> set[str]:
    """Return every command of a group, as a user types it."""
    context = click.Context(group)
    found: set[str] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found |= commands(command, f"{prefix} {name}") if isinstance(command, click.Group) else {f"{prefix} {name}"}
    return found


def test_the_cli_page_lists_every_command() -> None:
    rows = re.findall(r"^\| `(rota(?: [a-z]+)+)", PAGE, re.MULTILINE)

    assert set(rows) == commands(app)
    assert len(rows) == len(set(rows))


def test_the_cli_page_lists_every_exit_code_with_its_meaning() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)

    assert {int(code): meaning for code, meaning in rows} == {int(code): text for code, text in MEANINGS.items()}


def test_the_cli_page_lists_every_signal_of_the_master() -> None:
    rows = re.findall(r"^\| `([A-Z0-9]+)` \| ", PAGE, re.MULTILINE)

    assert {signal.Signals[f"SIG{name}"] for name in rows} == set(master_signals.MEANINGS)
    assert len(rows) == len(set(rows))
