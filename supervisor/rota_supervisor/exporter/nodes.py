"""The nodes of a fleet, one line each: this one as its slots show it, others as their last heartbeat has it.

A node that falls silent is shown as lost for some minutes, unless it was leaving, or had not begun to serve.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rota import __version__
from rota.child.slots import MASTER_SLOT, Phase
from rota.protocol.nodes import Node, NodeReport
from rota.protocol.store import Store
from rota.telemetry import metrics as m
from rota_supervisor.exporter.asking import FreshAnswer, RedisThread
from rota_supervisor.exporter.fleet import Member
from rota_supervisor.exporter.observer import Observation, pace_of
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.layout import Role
from rota_supervisor.notice import FLEET_STATES, Json, death_in_words

LOST: Final = "lost"
_MAY_GO: Final = (FLEET_STATES[Phase.BOOTING], FLEET_STATES[Phase.DRAINING])


def reader(settings: ExporterSettings, redis: RedisThread | None) -> Callable[[], list[Node] | None]:
    """Return what asks for the nodes; None is returned without an answer, and where Redis is not to be asked."""
    if redis is None:
        return lambda: None
    look = Store(settings.server.namespace).nodes()
    return FreshAnswer(redis, lambda run: run(look)).read


def rows(seen: Observation, nodes: Iterable[Node] | None) -> list[Json]:
    """Return a row a node, this one first."""
    own = {"node": seen.notice.node, "is_this": True, **own_report(seen)._asdict(), "seen_seconds_ago": 0.0}
    return [own, *_others(seen.notice.node, nodes or ())]


def _others(this: str, nodes: Iterable[Node]) -> Iterator[Json]:
    for node in sorted(nodes):
        if node.name == this or (not node.is_alive and node.report.state in _MAY_GO):
            continue
        report = node.report if node.is_alive else node.report._replace(state=LOST)
        silent = round(node.silent_seconds, 1)
        yield {"node": node.name, "is_this": False, **report._asdict(), "seen_seconds_ago": silent}


def own_report(seen: Observation) -> NodeReport:
    """Return how this node is."""
    workers = [member for member in seen.fleet if member.role is Role.WORKER]
    death = seen.notice.last_death
    report = NodeReport(
        state=_state(seen.fleet),
        version=__version__,
        url=seen.notice.url,
        workers=len(workers),
        desired=int(sum(count for _, (count,) in seen.samples.series(m.WORKERS_DESIRED))),
        busy=sum(len(member.tasks) for member in workers),
        concurrency=sum(member.places for member in workers),
        quiet=sum(member.phase is Phase.QUIET for member in workers),
        last_death=None if death is None else death_in_words(death),
    )
    return pace_of(seen.recent, seen.now).added_to(report)


def _state(fleet: Iterable[Member]) -> str:
    master = next((member for member in fleet if member.slot == MASTER_SLOT), None)
    return LOST if master is None else FLEET_STATES.get(master.phase, LOST)
