"""`rota health`: the fleet's own answer to a probe, for containers without curl."""

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from rota_supervisor.cli import command, output
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.exporter.headlines import GOOD
from rota_supervisor.fleet_members import in_one_line
from rota_supervisor.node_http import NodeHttp, NodeSilent, node_at, token_in

LIVE = "/livez"
READY = "/readyz"
HEADLINE_SECONDS: Final = 1.0  # what a probe may lose to a page that is slow to answer


@click.command(cls=command.RotaCommand)
@click.option("--live", "path", flag_value=LIVE, default=LIVE, help="Does the master live? [default]")
@click.option("--ready", "path", flag_value=READY, help="Are a worker and a poller up, and Redis reached?")
def health(path: str) -> None:
    """Ask whether this node's fleet is well: exit 0 for yes, 1 for no, 69 when nothing answers.

    Asks the health endpoint at http.listen; the master itself where that is turned off. A fleet may take work and
    still be in trouble: with --ready the first headline of the status page follows the "ok".
    """
    state = command.current_state()
    config = state.load_for_node()  # a fault in the file does not make the fleet unhealthy
    is_well, answer = _ask_http(config, path) if config.http.listen else judge(_status(config), path)
    if state.json:
        output.put_json({"healthy": is_well, "answer": answer})
    elif is_well:
        output.put(answer or "ok")
    if not is_well:
        raise Failure(ExitCode.NO, f"{path.strip('/')}: {answer}")


def _ask_http(config: Config, path: str) -> tuple[bool, str]:
    """Ask where the fleet's HTTP is, as this machine reaches it; the master knows where, if the file holds port 0 or a
    fault."""
    node = node_of(config)
    try:
        answer = node.get(path)
    except NodeSilent as error:
        raise Failure(ExitCode.UNREACHABLE, str(error)) from None
    is_well, text = answer.status == http.client.OK, answer.text.strip()
    if is_well and path == READY and (headline := _headline(node)):
        text = f"ok; {headline}"
    return is_well, text


def _headline(node: NodeHttp) -> str:
    """Return the first headline of the status page; "" if all is well, or if the page does not answer in time or needs
    a token that is not known here."""
    try:
        answer = node.get("/status.json", seconds=HEADLINE_SECONDS)
    except NodeSilent:
        return ""
    if answer.status != http.client.OK:
        return ""
    first = json.loads(answer.text)["headlines"][0]
    return "" if first["level"] == GOOD else str(first["text"])


def node_of(config: Config, token: str = "") -> NodeHttp:
    """Return how to ask this node's exporter, with this token or that of the file. Raises Failure 69 when the file does
    not say where and no master does."""
    http = config.http
    return node_at(_place_of(config), token or token_of(http.token_file), http.tls_cert)


def _place_of(config: Config) -> str:
    """Return where the exporter listens. The master knows, if the port was picked: for 0, or as the default was taken.
    Raises Failure 69."""
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
        return listen  # of a master of another user, or of `rota exporter`


def token_of(file: str) -> str:
    """Return the bearer token that a file of the configuration holds, "" if there is none or it cannot be read."""
    try:
        return token_in(Path(file)) if file else ""
    except (OSError, ValueError):  # of another user, perhaps: health needs none, and who needs one is told so
        return ""


def _status(config: Config) -> dict[str, Any]:
    with master_of(config) as master:
        status: dict[str, Any] = master.ask("status")["status"]
    return status


def judge(status: Mapping[str, Any], path: str) -> tuple[bool, str]:
    """Return whether a fleet of this status is well, and why not. A master that answered is alive."""
    return (True, "ok") if path == LIVE else (status["ready"]["ok"], in_one_line(status["ready"]))
