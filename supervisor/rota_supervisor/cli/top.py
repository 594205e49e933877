"""`rota top`: the fleet in a terminal, once a second; or once, as text or JSON."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click

import rota
from rota_supervisor.cli import command, output
from rota_supervisor.cli.health import node_of
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import tls_options
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.node_http import NodeHttp, NodeSilent, node_of_url, token_in
from rota_supervisor.top.summary import plain

STATUS: Final = "/status.json"
_NO_TEXTUAL: Final = "rota top draws with Textual, which is not installed: pip install 'rota[top]', or say --once"
_NO_HTTP: Final = (
    "rota top asks the fleet's HTTP, which is turned off: set [http] listen, or say --url of a node that has it; "
    "rota status asks the master itself"
)
_ASKS: Final = "{} asks for a token: say --token-file with a file that holds it, and that you may read"
_REFUSES: Final = "{} has another token: say --token-file with the file that its [http] token_file names"
_COLUMNS: Final = 160  # of text that no terminal shows


@click.command(cls=command.RotaCommand)
@click.option("--url", help="The node to ask, as http://host:9477 [else http.listen].")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its bearer token.")
@click.option("--once", is_flag=True, help="Write it once, as text, and leave.")
def top(*, url: str | None, token_file: Path | None, once: bool) -> int:
    """Show what the fleet does, once a second: what is wrong with it, queues, workers, nodes, and events.

    With --once or --json it is written once. ? shows the keys.
    """
    state = command.current_state()
    config = state.load_for_node()
    node = _node(config, url, token_file)
    if state.json:
        output.put_json(read_status(node))
    elif once:
        output.put(_plain(read_status(node)))
    else:
        return _watch(state, config, node)
    return ExitCode.CLEAN


def _node(config: Config, url: str | None, token_file: Path | None) -> NodeHttp:
    if url is None and not config.http.listen:
        raise Failure(ExitCode.CONFIG, _NO_HTTP)
    token = _token_in(token_file) if token_file else ""
    try:
        return node_of(config, token) if url is None else node_of_url(url, token)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None


def _token_in(file: Path) -> str:
    try:
        return token_in(file)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file} cannot be used: {error}", param_hint="--token-file") from None


def read_status(node: NodeHttp) -> dict[str, Any]:
    """Return what the node's `/status.json` says. Raises Failure 69."""
    try:
        return reader(node)()
    except NodeSilent as error:
        raise Failure(ExitCode.UNREACHABLE, str(error)) from None


def reader(node: NodeHttp) -> Callable[[], dict[str, Any]]:
    """Return what asks the node for its `/status.json`, and raises NodeSilent."""

    def read() -> dict[str, Any]:
        answer = node.get(STATUS)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise NodeSilent(_REFUSES.format(node.url) if node.token else _ASKS.format(node.url))
        if answer.status != HTTPStatus.OK:
            raise NodeSilent(f"{node.url}{STATUS} answers {answer.status}: {answer.text.strip() or 'nothing'}")
        try:
            status: dict[str, Any] = json.loads(answer.text)
        except ValueError:
            raise NodeSilent(f"{node.url}{STATUS} answers what is no JSON: is it a node of Rota?") from None
        return status

    return read


def _plain(status: dict[str, Any]) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _COLUMNS
    return plain(status, width)


def _watch(state: command.CliState, config: Config, node: NodeHttp) -> int:
    """Watch until somebody leaves; answers the exit code. Raises Failure: 78 without Textual, 2 where there is no
    terminal, 69 when nobody answers at the start."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(ExitCode.USAGE, "rota top draws on a terminal, and there is none: say --once or --json")
    try:
        from rota_supervisor.top.top_app import Top  # noqa: PLC0415 - Textual may be missing, and takes long to import
    except ModuleNotFoundError:
        raise Failure(ExitCode.CONFIG, _NO_TEXTUAL) from None
    fleet = read_status(node)["fleet"]
    respect_no_color(state)
    with rota.Client(config.redis_url, fleet, **tls_options(config)) as client:
        view = Top(reader(node), client)
        view.run()
    return view.return_code or ExitCode.CLEAN


def respect_no_color(state: command.CliState) -> None:
    """Have Textual draw without colors if that was asked for."""
    if state.no_color:
        os.environ["NO_COLOR"] = "1"
