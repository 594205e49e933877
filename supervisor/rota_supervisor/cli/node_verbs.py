"""The commands that query a node's exporter: `rota health`, a health probe for containers without curl, and `rota top`,
which shows the fleet in a terminal once a second, or once as text or JSON."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click

import rota
from rota_supervisor.cli import command, output
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import access_options
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.exporter.headlines import GOOD
from rota_supervisor.fleet_snapshot import one_line
from rota_supervisor.node_http import NodeHttp, NodeUnreachable, node_at, node_of_url, token_in

STATUS: Final = "/status.json"
_NO_TEXTUAL: Final = "rota top needs Textual, which is not installed: pip install 'rota[top]', or use --once"
_NO_HTTP: Final = (
    "rota top queries the HTTP server, which is turned off: set [http] listen, or name another node with --url; "
    "`rota status` works without the HTTP server"
)
_UNAUTHENTICATED: Final = (
    "{} requires a token: use --token-file with a file that contains the token and that you may read"
)
_REJECTED: Final = (
    "{} has another token: use --token-file with a file that contains the token of that node ([http] token_file)"
)
_COLUMNS: Final = 160  # the width of text that is not written to a terminal

LIVE = "/livez"
READY = "/readyz"
HEADLINE_SECONDS: Final = 1.0  # how long a probe may wait for a slow page


@click.command(cls=command.RotaCommand)
@click.option("--url", help="Query this node, for example http://host:9477 [http.listen].")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the bearer token of the node from this file.",
)
@click.option("--once", is_flag=True, help="Write the status once, as text, and exit.")
def top(*, url: str | None, token_file: Path | None, once: bool) -> int:
    """Show the fleet in a terminal, once a second: problems, queues, workers, nodes and events.

    Press ? to show the keys. With --once or --json, write the status once and exit.
    """
    state = command.current_state()
    config = state.load_usable().config
    node = _node(config, url, token_file)
    with command.failing({NodeUnreachable: ExitCode.UNREACHABLE}):
        if state.json:
            output.put_json(status_of(node))
        elif once:
            output.put(_plain(status_of(node)))
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


def status_of(node: NodeHttp) -> dict[str, Any]:
    """Return the content of the node's `/status.json`. Raises NodeUnreachable."""
    response = node.get(STATUS)
    if response.status == HTTPStatus.UNAUTHORIZED:
        raise NodeUnreachable(_REJECTED.format(node.url) if node.token else _UNAUTHENTICATED.format(node.url))
    if response.status != HTTPStatus.OK:
        why = "this server is not a node of a Rota fleet" if response.status == HTTPStatus.NOT_FOUND else response.line
        raise NodeUnreachable(f"{node.url}{STATUS} returned {response.status}: {why or 'is it a node of Rota?'}")
    try:
        status: dict[str, Any] = json.loads(response.text)
    except ValueError:
        raise NodeUnreachable(f"{node.url}{STATUS} did not return JSON: is it a node of Rota?") from None
    return status


def _plain(status: dict[str, Any]) -> str:
    from rota_supervisor.top.fleet_view import plain  # noqa: PLC0415 - a probe does not need the tables

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _COLUMNS
    return plain(status, width)


def _watch(state: command.CliState, config: Config, node: NodeHttp) -> int:
    """Show the view until the user quits, and return the exit code. Raises Failure with code 78 if Textual is missing,
    Failure with code 2 if there is no terminal, and NodeUnreachable if the node does not reply at the start."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(ExitCode.USAGE, "rota top needs a terminal: without a terminal, use --once or --json")
    try:
        from rota_supervisor.top.top_app import Top  # noqa: PLC0415 - Textual may be missing, and its import is slow
    except ModuleNotFoundError:
        raise Failure(ExitCode.CONFIG, _NO_TEXTUAL) from None
    fleet = status_of(node)["fleet"]
    if state.no_color:
        os.environ["NO_COLOR"] = "1"  # Textual reads this variable.
    with rota.Client(config.redis_url, fleet, **access_options(config)) as client:
        view = Top(partial(status_of, node), client)
        view.run()
    return view.return_code or ExitCode.CLEAN


@click.command(cls=command.RotaCommand)
@click.option("--live", "path", flag_value=LIVE, default=LIVE, help="Check whether the master is alive [default].")
@click.option(
    "--ready", "path", flag_value=READY, help="Check whether a worker and a poller are up and Redis is reachable."
)
def health(path: str) -> None:
    """Check whether this node's fleet is healthy. Exit with 0 if it is, with 1 if it is not, and with 69 if nothing
    replies.

    Query the health endpoint at http.listen, or the master itself if HTTP is turned off. A fleet may run tasks and
    still have a problem: with --ready, the first headline of the status page follows the "ok".
    """
    state = command.current_state()
    config = state.load_usable().config  # A fault in the file does not make the fleet unhealthy.
    is_well, text = _query_http(config, path) if config.http.listen else judge(_status(config), path)
    if state.json:
        output.put_json({"healthy": is_well, "answer": text})
    elif is_well:
        output.put(text or "ok")
    if not is_well:
        raise Failure(ExitCode.NO, f"{path.strip('/')}: {text}")


def _query_http(config: Config, path: str) -> tuple[bool, str]:
    """Query the fleet's HTTP server. If the file has port 0 or a fault, the master reports the server's address."""
    node = node_of(config)
    with command.failing({NodeUnreachable: ExitCode.UNREACHABLE}):
        response = node.get(path)
    is_well = response.status == HTTPStatus.OK
    text = response.text.strip()
    if is_well and path == READY and (headline := _headline(node)):
        text = f"ok; {headline}"
    return is_well, text


def _headline(node: NodeHttp) -> str:
    """Return the first headline of the status page. Return "" if there is none, if the page does not reply in time, or
    if it needs a token that is not available here."""
    try:
        response = node.get("/status.json", seconds=HEADLINE_SECONDS)
    except NodeUnreachable:
        return ""
    if response.status != HTTPStatus.OK:
        return ""
    first = json.loads(response.text)["headlines"][0]
    return "" if first["level"] == GOOD else str(first["text"])


def node_of(config: Config, token: str = "") -> NodeHttp:
    """Return a client of this node's exporter. It sends `token`, or the token in the configured file if `token` is "".
    Raises Failure with code 69 if neither the configuration nor a master states the address."""
    http = config.http
    return node_at(_listen_address(config), token or token_of(http.token_file), http.tls_cert)


def _listen_address(config: Config) -> str:
    """Return the listen address of the exporter. If the port was chosen at startup, because port 0 is configured or the
    default port was taken, the master reports the address. Raises Failure with code 69 if port 0 is configured and the
    master does not reply."""
    listen = config.http.listen
    port = listen.rpartition(":")[2]
    is_known = port.isdecimal() and port != "0"
    if is_known and listen != Config().http.listen:
        return listen
    try:
        return str(_status(config)["listen"] or listen)
    except Failure:
        if not is_known:
            raise
        # The master belongs to another user, or the node is a `rota exporter`, which has no master.
        return listen


def token_of(file: str) -> str:
    """Return the bearer token that the file contains, or "" if `file` is "" or cannot be read."""
    try:
        return token_in(Path(file)) if file else ""
    except (OSError, ValueError):
        # The file may belong to another user. Probes need no token, and other requests report that it is missing.
        return ""


def _status(config: Config) -> dict[str, Any]:
    with master_of(config) as master:
        status: dict[str, Any] = master.request("status")["status"]
    return status


def judge(status: Mapping[str, Any], path: str) -> tuple[bool, str]:
    """Return whether a fleet with this status is healthy, and the reason if it is not. If `path` is that of `/livez`,
    the fleet is always healthy, because a master that has replied is alive.
    """
    return (True, "ok") if path == LIVE else (status["ready"]["ok"], one_line(status["ready"]))
