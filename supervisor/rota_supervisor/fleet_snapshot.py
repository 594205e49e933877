"""The fleet of this node at one time: what its slots show and what its master says, put together in typed records.

`snapshot` is pure. The master calls it for the control socket's `status`, the exporter for `/status.json`; each adds
what only it knows. `FleetSnapshot.to_json` gives facts their names in JSON, and is the only place that does.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rota import __version__
from rota.child.slots import Phase
from rota.protocol.nodes import NodeReport
from rota_supervisor.fleet_members import Health, Member, Patience, readiness
from rota_supervisor.layout import Role, role_of
from rota_supervisor.notice import (
    FLEET_STATES,
    ChildNotice,
    Json,
    Notice,
    PoolNotice,
    PoolState,
    dated,
    death_in_words,
)

LOST: Final = "lost"  # the state of a fleet whose master is gone


class Moment(NamedTuple):
    """One time by two clocks, in seconds: `now` by CLOCK_BOOTTIME, `wall` in Unix time."""

    now: float
    wall: float


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """What the master says of a child, and what its slot shows; None while no process lives there."""

    child: ChildNotice
    role: Role
    member: Member | None
    ready_seconds: float | None

    def to_json(self) -> Json:
        """Return its row in JSON: all that the master says of it, and what its slot shows."""
        told, member = self.child._asdict(), self.member
        del told["ready_at"]
        seen = {
            "role": self.role.value,
            "pid": member.pid if member else 0,
            "phase": member.phase.name.lower() if member else None,
            "quiet": member is not None and member.phase is Phase.QUIET,
            "concurrency": member.places if member else 1,
            "beat_age_seconds": round(member.beat_age_seconds, 3) if member else None,
            "ready_seconds": self.ready_seconds,
            "tasks": [task.to_json() for task in member.tasks] if member else [],
        }
        return told | seen


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """What the master says of a pool, whether its starts are held back, and how many tasks it runs."""

    told: PoolNotice
    state: PoolState
    busy: int

    def to_json(self) -> Json:
        """Return its row in JSON."""
        return {**self.told._asdict(), "state": self.state.value, "busy": self.busy}


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet `at` one time. `state`: of its master, or LOST. `ready`: whether this node takes work."""

    at: Moment
    notice: Notice
    state: str
    ready: Health
    pools: tuple[PoolSnapshot, ...]
    processes: tuple[ProcessSnapshot, ...]

    def to_json(self) -> Json:
        """Return it as the control socket and `/status.json` show it; `docs/status.md` explains each key."""
        notice, (now, wall) = self.notice, self.at
        started_at, quiet_since = notice.started_at, notice.quiet_since
        return {
            "at": round(wall, 3),
            "version": __version__,
            **{name: getattr(notice, name) for name in _AS_TOLD},
            "state": self.state,
            "ready": self.ready.to_json(),
            "started_at": None if started_at is None else round(wall - (now - started_at), 1),
            "quiet_seconds": 0.0 if quiet_since is None else round(now - quiet_since, 1),
            "held": [held.row(now) for held in notice.held],
            "closed": [closed.row(now) for closed in notice.closed],
            "last_reload": dated(notice.last_reload, now, wall),
            "last_death": dated(notice.last_death, now, wall),
            "events": [dated(event._asdict(), now, wall) for event in notice.events],
            "pools": [pool.to_json() for pool in self.pools],
            "processes": [process.to_json() for process in self.processes],
        }


# Facts of the notice that JSON has as they are.
_AS_TOLD: Final = (
    "fleet",
    "node",
    "pid",
    "generation",
    "loading",
    "redis_up",
    "redis_refusal",
    "redis_round_trip_seconds",
    "evicts_keys",
)


def snapshot(slots: Iterable[Member], notice: Notice, at: Moment, patience: Patience | None) -> FleetSnapshot:
    """Return the fleet whose living processes show `slots` and whose master says `notice`.

    `patience`: how long they may be silent; None where no master is expected, as in `rota exporter`.
    """
    members = {member.slot: member for member in slots}
    children = {child.slot: child for child in notice.children}
    ready = readiness(tuple(members.values()), notice, at.now, patience)
    processes = tuple(
        _process(slot, children.get(slot), members.get(slot), at.now) for slot in sorted(members | children)
    )
    return FleetSnapshot(at, notice, state_of(members.values()), ready, _pools(notice, processes), processes)


def state_of(members: Iterable[Member]) -> str:
    """Return the state of the fleet, as its master shows it; LOST without one."""
    master = next((member for member in members if member.role is Role.MASTER), None)
    return LOST if master is None else FLEET_STATES.get(master.phase, LOST)


def _process(slot: int, child: ChildNotice | None, member: Member | None, now: float) -> ProcessSnapshot:
    child = child or ChildNotice(slot)
    ready_seconds = None if child.ready_at is None else round(now - child.ready_at, 1)
    return ProcessSnapshot(child, role_of(slot), member, ready_seconds)


def _pools(notice: Notice, processes: Iterable[ProcessSnapshot]) -> tuple[PoolSnapshot, ...]:
    held = {row.pool: PoolState(row.state) for row in notice.held if row.role == Role.WORKER}
    busy: Counter[str | None] = Counter()
    for process in processes:
        if process.role is Role.WORKER and process.member is not None:
            busy[process.child.pool] += len(process.member.tasks)
    return tuple(PoolSnapshot(pool, held.get(pool.name, PoolState.RUNNING), busy[pool.name]) for pool in notice.pools)


_NO_TASK: Final[Json] = {"task": None, "task_age_seconds": None, "progress": None}


def rows_by_task(processes: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return a row for each task of a process that runs several, numbered by slot and place; else one for the process,
    with its task if there is one. The number is in `where`."""
    rows: list[Json] = []
    for process in processes:
        slot, tasks = process["slot"], process["tasks"]
        if len(tasks) > 1:
            rows += [{**process, **task, "where": f"{slot}.{task['place']}"} for task in tasks]
        else:
            rows.append({**process, **(tasks[0] if tasks else _NO_TASK), "where": slot})
    return rows


# The node, as it reports itself to others


class WorkerLoad(NamedTuple):
    """What counts of a worker in the report of its node."""

    tasks: int
    places: int
    is_quiet: bool


def node_report(notice: Notice, state: str, workers: Collection[WorkerLoad]) -> NodeReport:
    """Return how the node is: its master says so in each heartbeat, its exporter on its own page."""
    return NodeReport(
        state=state,
        version=__version__,
        url=notice.url,
        workers=len(workers),
        desired=sum(pool.desired for pool in notice.pools),
        busy=sum(worker.tasks for worker in workers),
        concurrency=sum(worker.places for worker in workers),
        quiet=sum(worker.is_quiet for worker in workers),
        last_death=None if notice.last_death is None else death_in_words(notice.last_death),
    )
