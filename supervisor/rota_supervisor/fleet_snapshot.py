"""The state of this node's fleet at one time, from its slots and its master's notice, as typed records. It includes
whether the fleet is alive and ready.

`snapshot` is pure. The master calls it for the control socket's `status`, and the exporter for `/status.json`; each
adds what only it knows. `FleetSnapshot.to_json` is the only place that gives facts their names in JSON.

The same rules serve `/livez`, `/readyz`, `rota health` and `rota status`. They are pure and never query Redis. Alive
means that the master's loop runs. This must not depend on Redis, or an outage of Redis would restart every pod. Ready
means that this node accepts work now."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from rota import __version__
from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase, Slot
from rota.durations import NANOSECONDS
from rota.protocol.nodes import NodeReport
from rota.protocol.progress import Progress, progress_row, read_progress
from rota.server.server_errors import first_sentence
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
    redis_warnings,
    sentence,
)

LIVE_TICKS: Final = 3  # the master may miss two heartbeats
_STATES_OF_MASTER: Final = FLEET_STATES | {Phase.EMPTY: "gone", Phase.IDLE: "ready", Phase.BUSY: "busy"}

LOST: Final = "lost"  # the state of a fleet whose master has died


@dataclass(frozen=True, slots=True)
class MemberTask:
    """A task that runs now."""

    task: TaskInSlot
    age_seconds: float  # since its start
    left_seconds: float  # until its deadline, infinite without one
    progress: Progress | None = None

    def to_json(self) -> Json:
        """Return its row in JSON."""
        task, age, left = self.task, self.age_seconds, self.left_seconds
        return {
            "place": task.task_index,
            "task": {"id": task.id, "name": task.name, "queue": task.queue},
            "task_age_seconds": round(age, 3),
            "limit_seconds": round(age + left, 3) if task.deadline_ns else None,
            "left_seconds": round(left, 3) if task.deadline_ns else None,
            "progress": progress_row(self.progress),
        }


@dataclass(frozen=True, slots=True)
class Member:
    """A live process of the fleet, and the tasks that it runs."""

    slot: int
    role: Role
    pid: int
    phase: Phase
    beat_age_seconds: float  # since the last heartbeat
    tasks: tuple[MemberTask, ...] = ()
    concurrency: int = 1  # maximum number of tasks


def member_in(number: int, slot: Slot, now_ns: int) -> Member:
    """Return what a slot shows of its process at `now_ns` (CLOCK_BOOTTIME)."""
    tasks = tuple(_member_task(slot, task, now_ns) for task in slot.running())
    beat_age = max(0, now_ns - slot.heartbeat_ns) / NANOSECONDS
    return Member(number, role_of(number), slot.pid, slot.phase, beat_age, tasks, slot.concurrency)


def _member_task(slot: Slot, task: TaskInSlot, now_ns: int) -> MemberTask:
    age = max(0, now_ns - task.started_ns) / NANOSECONDS
    left = (task.deadline_ns - now_ns) / NANOSECONDS if task.deadline_ns else math.inf
    return MemberTask(task, age, left, read_progress(slot.record(task.task_index).progress_of(task.entry)))


# Alive and ready


class Patience(NamedTuple):
    """The longest times without a heartbeat. The master sends one every `tick_seconds`; a child that runs no task may
    take `beat_seconds`."""

    tick_seconds: float
    beat_seconds: float


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check, with a text for people."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Health:
    """The results of all checks, and warnings that do not make a check fail."""

    checks: tuple[HealthCheck, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> Json:
        """Return the health as `/readyz?verbose` and the status show it."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks], "warnings": list(self.warnings)}


def in_one_line(health: Mapping[str, Any]) -> str:
    """Return a health, given as JSON, as text: "ok" or the failed checks, then the warnings."""
    said = ["ok"] if health["ok"] else [check["seen"] for check in health["checks"] if not check["ok"]]
    return "; ".join((*said, *health["warnings"]))


def liveness(members: Iterable[Member], tick_seconds: float) -> Health:
    """Return whether the master sends heartbeats, which are due every `tick_seconds`."""
    return Health((_master_beats(_master_of(members), tick_seconds),))


def readiness(members: Sequence[Member], notice: Notice, now: float, patience: Patience | None) -> Health:
    """Return whether this node accepts work: the master runs the fleet, a worker and a poller serve, Redis replies, and
    no pool is in back-off. `patience` is None if no master is expected; then only Redis counts."""
    who = "this exporter" if patience is None else "the master"
    redis = HealthCheck("redis", notice.redis_up, _redis_in_words(who, notice))
    warnings = redis_warnings(notice.redis_round_trip_seconds, evicts_keys=notice.evicts_keys)
    shown = tuple(warnings) if notice.redis_up else ()
    if patience is None:
        return Health((redis,), shown)
    master = _master_of(members)
    phase = Phase.EMPTY if master is None else master.phase
    held_back = "; ".join(sentence(held.row(now)) for held in notice.held)
    checks = (
        _master_beats(master, patience.tick_seconds),
        HealthCheck("master_serves", phase is Phase.IDLE, f"the master is {_STATES_OF_MASTER[phase]}"),
        _one_serves(Role.WORKER, members, patience.beat_seconds),
        _one_serves(Role.POLLER, members, patience.beat_seconds),
        redis,
        HealthCheck("restarts", not held_back, held_back or "no pool is in back-off"),
    )
    return Health(checks, shown)


def _redis_in_words(who: str, notice: Notice) -> str:
    if notice.redis_refusal:
        return f"Redis refuses: {first_sentence(notice.redis_refusal)}"
    return f"{who} {'reaches' if notice.redis_up else 'does not reach'} Redis"


def _master_of(members: Iterable[Member]) -> Member | None:
    return next((member for member in members if member.role is Role.MASTER), None)


def _master_beats(master: Member | None, tick_seconds: float) -> HealthCheck:
    if master is None:
        return HealthCheck("master_beats", ok=False, seen="there is no master")
    age, limit = master.beat_age_seconds, tick_seconds * LIVE_TICKS
    return HealthCheck("master_beats", age < limit, f"last beat {age:.1f} s ago, limit {limit:g} s")


def _one_serves(role: Role, members: Iterable[Member], beat_seconds: float) -> HealthCheck:
    of_role = [member for member in members if member.role is role]
    serving = sum(serves(member, beat_seconds) for member in of_role)
    seen = f"{serving} of {len(of_role)} {role}s serve" if of_role else f"there is no {role}"
    return HealthCheck(f"{role}_serves", serving > 0, seen)


def serves(member: Member, beat_seconds: float) -> bool:
    """Whether a worker or poller does its work. A process that runs a single task is judged by the task's deadline; any
    other process by its heartbeat."""
    alone = member.tasks[0] if member.tasks and member.concurrency <= 1 else None
    if member.phase is Phase.BUSY and alone is not None and alone.left_seconds > 0:
        return True
    return member.phase in (Phase.IDLE, Phase.BUSY) and member.beat_age_seconds <= beat_seconds


class Moment(NamedTuple):
    """One time on two clocks, in seconds: `now` is CLOCK_BOOTTIME, `wall` is Unix time."""

    now: float
    wall: float


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """A child as the master reports it, and what its slot shows."""

    child: ChildNotice
    role: Role
    member: Member | None  # None if no process is in the slot
    ready_seconds: float | None  # since the child reported that it is ready

    def to_json(self) -> Json:
        """Return the row in JSON, with everything that the master and the slot report."""
        told, member = self.child._asdict(), self.member
        del told["ready_at"]
        seen = {
            "role": self.role.value,
            "pid": member.pid if member else 0,
            "phase": member.phase.name.lower() if member else None,
            "quiet": member is not None and member.phase is Phase.QUIET,
            "concurrency": member.concurrency if member else 1,
            "beat_age_seconds": round(member.beat_age_seconds, 3) if member else None,
            "ready_seconds": self.ready_seconds,
            "tasks": [task.to_json() for task in member.tasks] if member else [],
        }
        return told | seen


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool as the master reports it, whether its starts are held back, and how many tasks it runs."""

    told: PoolNotice
    state: PoolState
    busy: int

    def to_json(self) -> Json:
        """Return the row in JSON."""
        return {**self.told._asdict(), "state": self.state.value, "busy": self.busy}


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet `at` one time."""

    at: Moment
    notice: Notice
    state: str  # of its master, or LOST
    ready: Health  # whether this node accepts work
    pools: tuple[PoolSnapshot, ...]
    processes: tuple[ProcessSnapshot, ...]

    def to_json(self) -> Json:
        """Return the fleet as the control socket and `/status.json` show it. `docs/status.md` explains each key."""
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


# Facts of the notice that JSON contains unchanged.
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
    """Return the fleet from the live processes in `slots` and the master's `notice`.

    `patience` gives the longest times without a heartbeat. It is None if no master is expected, as in `rota exporter`.
    """
    members = {member.slot: member for member in slots}
    children = {child.slot: child for child in notice.children}
    ready = readiness(tuple(members.values()), notice, at.now, patience)
    processes = tuple(
        _process(slot, children.get(slot), members.get(slot), at.now) for slot in sorted(members | children)
    )
    return FleetSnapshot(at, notice, state_of(members.values()), ready, _pools(notice, processes), processes)


def state_of(members: Iterable[Member]) -> str:
    """Return the state of the fleet as its master shows it, or LOST without a master."""
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
    """Return a row for each task of a process that runs several, otherwise one row for the process with its task, if
    any. `where` is the slot, with the task's index if there are several tasks."""
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
    """The share of a worker in its node's report."""

    tasks: int
    concurrency: int
    is_quiet: bool


def node_report(notice: Notice, state: str, workers: Collection[WorkerLoad]) -> NodeReport:
    """Return the report of the node, which the master sends with each heartbeat and the exporter shows on its page."""
    return NodeReport(
        state=state,
        version=__version__,
        url=notice.url,
        workers=len(workers),
        desired=sum(pool.desired for pool in notice.pools),
        busy=sum(worker.tasks for worker in workers),
        concurrency=sum(worker.concurrency for worker in workers),
        quiet=sum(worker.is_quiet for worker in workers),
        last_death=None if notice.last_death is None else death_in_words(notice.last_death),
    )
