"""What people are shown of a fleet: one JSON object, for the control socket and for the log; and the notice for the
exporter, of what the master alone knows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from rota import __version__
from rota.child.life import NANOSECONDS
from rota.child.slot_task import TaskInSlot
from rota.protocol.nodes import NodeReport
from rota.protocol.progress import Progress, progress_row
from rota_supervisor.config.resolution import classic_sources, pool_sizes
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK, Child, ChildState
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import origin_of_count
from rota_supervisor.notice import FLEET_STATES, ChildOrigin, Notice, dated, death_in_words, states_of_pools
from rota_supervisor.server_check import SAFE_POLICY

_ANY: Final = ("0.0.0.0", "[::]")  # noqa: S104 - compared with, not bound
_OF_THIS_MACHINE: Final = ("127.", "[::1]")
_NO_TASK: Final = {"task": "", "task_id": "", "task_seconds": 0.0, "progress": None}


class SeenTask(NamedTuple):
    """A task that runs, and what it says of its progress."""

    task: TaskInSlot
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """What was read for people at `now`, seconds of the master's clock, when it was `wall` by the wall clock: by slot
    the tasks that run there, and the last beat (ns)."""

    now: float
    wall: float
    tasks: Mapping[int, Sequence[SeenTask]] = field(default_factory=dict)
    beats_ns: Mapping[int, int] = field(default_factory=dict)


def status(state: MasterState, glance: Glance) -> Answer:
    """The fleet as it stands."""
    rollout = state.rollout
    held = [each.row(glance.now) for each in state.held]
    return {
        "node": state.surroundings.node,
        "pid": state.surroundings.pid,
        "namespace": state.config.namespace,
        "state": FLEET_STATES[state.phase],
        "uptime_seconds": round(glance.now - state.started_at, 1),
        "redis": state.surroundings.redis,
        "redis_up": state.redis_up is True,
        "redis_refusal": state.redis_refusal,
        "redis_round_trip_seconds": state.redis_round_trip_seconds,
        "evicts_keys": state.eviction_policy not in ("", SAFE_POLICY),
        "listen": state.place,
        "generation": rollout.in_force.number,
        "loading": rollout.latest.number != rollout.in_force.number,
        "last_reload": dated(state.last_reload, glance.now, glance.wall),
        "last_death": dated(state.last_death, glance.now, glance.wall),
        "held": held,
        "adopts": [source._asdict() for source in classic_sources(state.config)],
        "quiet_seconds": round(state.quiet_seconds(glance.now), 1),
        "closed": [each.row(glance.now) for each in state.shown_closed],
        "pools": _pools(state, glance, states_of_pools(held)),
        "children": [_row(child, glance) for child in sorted(state.children, key=attrgetter("slot"))],
        "events": [dated(each._asdict(), glance.now, glance.wall) for each in state.events.last],
    }


def put_up_news(state: MasterState) -> list[do.Effect]:
    """The notice is put up anew when it says something else."""
    before, state.shown.notice = state.shown.notice, notice_of(state)
    return [do.PutUpNotice()] if state.shown.notice != before else []


def notice_of(state: MasterState) -> Notice:
    """What the exporter is told."""
    children = sorted(state.children, key=attrgetter("slot"))
    return Notice(
        node=state.surroundings.node,
        url=url_of(state.place, state.surroundings.host),
        held=state.held,
        quiet_since=state.quiet_since if state.quiet.is_asked else None,
        closed=state.shown_closed,
        last_reload=state.last_reload,
        last_death=state.last_death,
        children=tuple(ChildOrigin(child.slot, _pool_of(child), child.generation) for child in children),
        events=tuple(state.events.last),
    )


def report_of(state: MasterState) -> NodeReport:
    """What a heartbeat says of the node, as far as the master knows."""
    workers = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    return NodeReport(
        state=FLEET_STATES[state.phase],
        version=__version__,
        url=url_of(state.place, state.surroundings.host),
        workers=len(workers),
        desired=sum(state.wanted.counts.values()),
        busy=sum(len(child.tasks) for child in workers),
        concurrency=sum(child.places for child in workers),
        quiet=sum(child.is_quiet for child in workers),
        last_death=None if state.last_death is None else death_in_words(state.last_death),
    )


def url_of(place: str, host: str) -> str | None:
    """Return where other machines find what listens at a place of this one, `host`; None for nowhere."""
    address, _, port = place.rpartition(":")
    if not place or address.startswith(_OF_THIS_MACHINE):
        return None
    return f"http://{host if address in _ANY else address}:{port}/"


def _pools(state: MasterState, glance: Glance, states: Mapping[str, str]) -> list[dict[str, object]]:
    """A row a pool: how many workers it should have, who says so, and what it has. `busy`: so many tasks run."""
    generation, scaling = state.rollout.in_force, state.wanted.scaling
    sizes = pool_sizes(generation.config)
    workers = state.children.of(Role.WORKER)
    ready = Counter(child.pool for child in workers if child.state is ChildState.READY)
    quiet = Counter(child.pool for child in workers if child.state is ChildState.READY and child.is_quiet)
    busy = Counter(child.pool for child in workers for _ in glance.tasks.get(child.slot, ()))
    places = Counter({pool: told.settings.concurrency for pool, told in generation.pools.items()})
    return [
        {
            "pool": pool,
            "state": states[pool],
            "desired": count,
            "origin": origin_of_count(pool, generation, scaling),
            "configured": sizes[pool],
            "ready": ready[pool],
            "busy": busy[pool],
            "quiet": quiet[pool],
            "concurrency": places[pool],
        }
        for pool, count in scaling.counts(sizes).items()
    ]


def _row(child: Child, glance: Glance) -> dict[str, object]:
    now_ns, seen = round(glance.now * NANOSECONDS), glance.tasks.get(child.slot, ())
    tasks = [_task_row(each, now_ns) for each in seen]
    return {
        "slot": child.slot,
        "role": child.role.value,
        "pool": _pool_of(child),
        "generation": child.generation,
        "pid": child.pid,
        "state": child.state.value,
        "quiet": child.is_quiet,
        "ready_seconds": round(glance.now - child.ready_at, 1) if child.ready_at is not None else None,
        "beat_age_seconds": round(max(0, now_ns - glance.beats_ns.get(child.slot, now_ns)) / NANOSECONDS, 3),
        **(tasks[0] if tasks else _NO_TASK),
        "tasks": [{"place": each.task.place, **row} for each, row in zip(seen, tasks, strict=True)],
    }


def _pool_of(child: Child) -> str:
    return child.pool if child.role is Role.WORKER else ""


def _task_row(seen: SeenTask, now_ns: int) -> dict[str, object]:
    return {
        "task": seen.task.name,
        "task_id": seen.task.id,
        "task_seconds": round((now_ns - seen.task.started_ns) / NANOSECONDS, 3),
        "progress": progress_row(seen.progress),
    }
