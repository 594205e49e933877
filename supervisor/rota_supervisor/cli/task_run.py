"""Where and since when a task runs, as the master of its node or that node's HTTP shows it.

Redis holds neither the process nor the start: a worker marks a start in its own slot, which costs the server nothing.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.client.status import TaskStatus
from rota_supervisor.cli.control_client import master_of
from rota_supervisor.cli.health import token_of
from rota_supervisor.config.model import Config
from rota_supervisor.exits import Failure
from rota_supervisor.node_http import NodeSilent, node_of_url

if TYPE_CHECKING:
    from rota.protocol.nodes import Node


class Run(NamedTuple):
    """An attempt under way: the task, its worker's process, and for how many seconds it has run."""

    task_id: str
    pid: int
    seconds: float

    @property
    def started_at(self) -> datetime:
        """When it started, by the clock of this machine."""
        return datetime.now(UTC) - timedelta(seconds=self.seconds)


def find_run(found: TaskStatus, config: Config, nodes: Iterable["Node"]) -> Run | None:
    """Return the run of a task in progress; None if neither the master here nor the task's node shows it."""
    url = next((node.report.url for node in nodes if node.name == found.node), None)
    with contextlib.suppress(NodeSilent, ValueError):
        runs = _of_this_node(found.node, config) or (_of_another(url, config) if url else ())
        return next((run for run in runs if run.task_id == found.id), None)
    return None


def _of_this_node(node: str, config: Config) -> list[Run]:
    """Return what runs on the node of this machine's master, nothing if that is another node."""
    try:
        with master_of(config) as master:
            status: Mapping[str, Any] = master.ask("status")["status"]
    except Failure:  # no master is here
        return []
    is_meant = (status["node"], status["namespace"]) == (node, config.namespace)
    return [
        Run(task["task_id"], child["pid"], task["task_seconds"])
        for child in status["children"]
        for task in child["tasks"]
        if is_meant
    ]


def _of_another(url: str, config: Config) -> Iterator[Run]:
    """Yield what runs on the node at that URL. Raises NodeSilent, and ValueError for an answer that is no status."""
    answer = node_of_url(url, token_of(config.http.token_file)).get("/status.json")
    if answer.status != HTTPStatus.OK:
        return
    for process in json.loads(answer.text)["processes"]:
        for task in process["tasks"]:
            yield Run(task["task"]["id"], process["pid"], task["task_age_seconds"])
