"""The state of the fleet on this node at one moment, as typed records that are made from the slots and the master's
snapshot. The state includes whether the fleet is alive and ready.

`snapshot` is a pure function. The master calls it for the control socket's `status`, and the exporter calls it for
`/status.json`. Each caller adds the facts that only it knows. The JSON names of the facts about the fleet, its pools,
processes and tasks are defined only in the `to_json` methods of these records.

`/livez`, `/readyz`, `rota health` and `rota status` all use the same rules, which are pure functions and never query
Redis. Alive means that the master's loop is running. This must not depend on Redis, because otherwise an outage of
Redis would restart every pod. Ready means that this node currently accepts work."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, TypedDict

from rota import __version__
from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase, Slot
from rota.durations import NANOSECONDS
from rota.protocol.nodes import NodeReport
from rota.protocol.progress import Progress, progress_row, read_progress
from rota.server.server_errors import first_sentence
from rota_supervisor.layout import Role, role_of
from rota_supervisor.master_snapshot import (
    FLEET_STATES,
    ChildFacts,
    Json,
    MasterSnapshot,
    PoolFacts,
    PoolState,
    dated,
    death_text,
    redis_warnings,
    sentence,
)

LIVE_TICKS: Final = 3  # the master counts as alive if its last heartbeat is less than three ticks old
_STATES_OF_MASTER: Final = FLEET_STATES | {Phase.EMPTY: "gone", Phase.IDLE: "ready", Phase.BUSY: "busy"}

LOST: Final = "lost"  # the state of a fleet whose master has died


class ObservedTimes(NamedTuple):
    """The times of a running task that only an exporter can measure. A time that is not known is None."""

    lag_seconds: float | None  # how late the task started, by the Redis clock
    usual_seconds: float | None  # the longest run time that still counts as usual for this task


@dataclass(frozen=True, slots=True)
class MemberTask:
    """A task that is running."""

    task: TaskInSlot
    age_seconds: float  # seconds since the task started
    left_seconds: float  # seconds until the task's deadline, or infinity if there is none
    progress: Progress | None = None
    observed: ObservedTimes | None = None  # set only by an exporter

    def to_json(self) -> Json:
        """Return the task as a JSON row."""
        task = self.task
        age = self.age_seconds
        left = self.left_seconds
        return {
            "place": task.task_index,
            "task": {"id": task.id, "name": task.name, "queue": task.queue},
            "task_age_seconds": round(age, 3),
            "limit_seconds": round(age + left, 3) if task.deadline_ns else None,
            "left_seconds": round(left, 3) if task.deadline_ns else None,
            "progress": progress_row(self.progress),
            **(self.observed._asdict() if self.observed else {}),
        }


@dataclass(frozen=True, slots=True)
class Member:
    """A live process of the fleet, and the tasks that it is running."""

    slot: int
    role: Role
    pid: int
    phase: Phase
    heartbeat_age_seconds: float  # seconds since the last heartbeat of the process
    tasks: tuple[MemberTask, ...] = ()
    concurrency: int = 1  # the number of tasks that the process may run at once

    def with_history(self, observed: Callable[[MemberTask], ObservedTimes]) -> "Member":
        """Return a copy of the process whose tasks include the times that `observed` returns for them."""
        return replace(self, tasks=tuple(replace(task, observed=observed(task)) for task in self.tasks))


def member_in(number: int, slot: Slot, now_ns: int) -> Member:
    """Return the process in a slot, as described by the slot at `now_ns` (CLOCK_BOOTTIME)."""
    tasks = tuple(_member_task(slot, task, now_ns) for task in slot.running())
    heartbeat_age = max(0, now_ns - slot.heartbeat_ns) / NANOSECONDS
    return Member(number, role_of(number), slot.pid, slot.phase, heartbeat_age, tasks, slot.concurrency)


def _member_task(slot: Slot, task: TaskInSlot, now_ns: int) -> MemberTask:
    age = max(0, now_ns - task.started_ns) / NANOSECONDS
    left = (task.deadline_ns - now_ns) / NANOSECONDS if task.deadline_ns else math.inf
    return MemberTask(task, age, left, read_progress(slot.record(task.task_index).progress_of(task.entry)))


# Alive and ready


class HeartbeatLimits(NamedTuple):
    """The intervals within which processes must send heartbeats: the master every `tick_seconds`, and a child that runs
    no task every `beat_seconds`. The health checks allow the master LIVE_TICKS of its intervals."""

    tick_seconds: float
    beat_seconds: float


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one health check, with a text for people."""

    name: str
    ok: bool
    seen: str


class HealthJson(TypedDict):
    """A `Health` as JSON."""

    ok: bool
    checks: list[Json]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Health:
    """The results of all health checks, and warnings that do not make a check fail."""

    checks: tuple[HealthCheck, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> HealthJson:
        """Return the health as JSON, as `/readyz?verbose` and `rota status` show it."""
        return HealthJson(ok=self.ok, checks=[asdict(check) for check in self.checks], warnings=list(self.warnings))


def one_line(health: Mapping[str, Any]) -> str:
    """Convert a HealthJson to one line: "ok" or the failed checks, then the warnings."""
    texts = ["ok"] if health["ok"] else [check["seen"] for check in health["checks"] if not check["ok"]]
    return "; ".join((*texts, *health["warnings"]))


def liveness(members: Iterable[Member], tick_seconds: float) -> Health:
    """Check whether the master is sending its heartbeats, which are due every `tick_seconds`."""
    return Health((_master_heartbeat(_master_of(members), tick_seconds),))


def readiness(
    members: Sequence[Member], master_snapshot: MasterSnapshot, now: float, limits: HeartbeatLimits | None
) -> Health:
    """Check whether this node accepts work: the master runs the fleet, a worker and a poller serve, Redis replies, and
    no pool is in back-off. If `limits` is None, no master is expected, and only Redis is checked."""
    observer = "this exporter" if limits is None else "the master"
    redis = HealthCheck("redis", master_snapshot.redis_up, _redis_text(observer, master_snapshot))
    warnings = redis_warnings(master_snapshot.redis_round_trip_seconds, evicts_keys=master_snapshot.evicts_keys)
    shown = tuple(warnings) if master_snapshot.redis_up else ()
    if limits is None:
        return Health((redis,), shown)
    master = _master_of(members)
    phase = Phase.EMPTY if master is None else master.phase
    in_backoff = "; ".join(sentence(held.row(now)) for held in master_snapshot.held)
    checks = (
        _master_heartbeat(master, limits.tick_seconds),
        HealthCheck("master_serves", phase is Phase.IDLE, f"the master is {_STATES_OF_MASTER[phase]}"),
        _workers_serve(members, master_snapshot.pools, limits.beat_seconds),
        _one_serves(Role.POLLER, members, limits.beat_seconds),
        redis,
        HealthCheck("restarts", not in_backoff, in_backoff or "no pool is in back-off"),
    )
    return Health(checks, shown)


def _redis_text(observer: str, master_snapshot: MasterSnapshot) -> str:
    if master_snapshot.redis_refusal:
        return f"Redis refuses: {first_sentence(master_snapshot.redis_refusal)}"
    return f"{observer} {'reaches' if master_snapshot.redis_up else 'does not reach'} Redis"


def _master_of(members: Iterable[Member]) -> Member | None:
    return next((member for member in members if member.role is Role.MASTER), None)


def _master_heartbeat(master: Member | None, tick_seconds: float) -> HealthCheck:
    if master is None:
        return HealthCheck("master_beats", ok=False, seen="there is no master")
    age = master.heartbeat_age_seconds
    limit = tick_seconds * LIVE_TICKS
    return HealthCheck("master_beats", age < limit, f"last heartbeat {age:.1f} s ago, limit {limit:g} s")


def _workers_serve(members: Iterable[Member], pools: Iterable[PoolFacts], beat_seconds: float) -> HealthCheck:
    """Check whether a worker serves tasks. A fleet that is scaled to zero passes the check, because the next task
    starts a worker."""
    has_none = not any(member.role is Role.WORKER for member in members)
    if has_none and any(pool.scaling and pool.scaling["max"] and not pool.desired for pool in pools):
        return HealthCheck("worker_serves", ok=True, seen="no worker is needed now, because the pool is scaled to zero")
    return _one_serves(Role.WORKER, members, beat_seconds)


def _one_serves(role: Role, members: Iterable[Member], beat_seconds: float) -> HealthCheck:
    of_role = [member for member in members if member.role is role]
    serving = sum(serves(member, beat_seconds) for member in of_role)
    seen = f"{serving} of {len(of_role)} {role}s serve" if of_role else f"there is no {role}"
    return HealthCheck(f"{role}_serves", serving > 0, seen)


def serves(member: Member, beat_seconds: float) -> bool:
    """Whether a worker or poller is doing its work. A worker that runs one task at a time cannot send heartbeats while
    it runs a task. It therefore counts as working until the deadline of the task. In all other cases, the process must
    be idle or busy, and must have sent a heartbeat within the last `beat_seconds`."""
    only_task = member.tasks[0] if member.tasks and member.concurrency <= 1 else None
    if member.phase is Phase.BUSY and only_task is not None and only_task.left_seconds > 0:
        return True
    return member.phase in (Phase.IDLE, Phase.BUSY) and member.heartbeat_age_seconds <= beat_seconds


class Moment(NamedTuple):
    """One moment on two clocks, in seconds: `now` is CLOCK_BOOTTIME, `wall` is Unix time."""

    now: float
    wall: float


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """The facts about a child, from its master and from its slot."""

    child: ChildFacts
    role: Role
    member: Member | None  # None if no process has entered the slot
    ready_seconds: float | None  # seconds since the child reported that it is ready

    def to_json(self) -> Json:
        """Return the child as a JSON row, with all facts from the master and the slot."""
        facts = self.child._asdict()
        member = self.member
        del facts["ready_at"]
        seen = {
            "role": self.role.value,
            "pid": member.pid if member else 0,
            "phase": member.phase.name.lower() if member else None,
            "quiet": member is not None and member.phase is Phase.QUIET,
            "concurrency": member.concurrency if member else 1,
            "beat_age_seconds": round(member.heartbeat_age_seconds, 3) if member else None,
            "ready_seconds": self.ready_seconds,
            "tasks": [task.to_json() for task in member.tasks] if member else [],
        }
        return facts | seen


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The facts about a pool from the master, the state of the pool, and how many tasks it is running."""

    facts: PoolFacts
    state: PoolState
    busy: int
    short_seconds: float | None = None  # how long the pool has lacked workers; set only by an exporter

    def to_json(self) -> Json:
        """Return the pool as a JSON row."""
        row = {**self.facts._asdict(), "state": self.state.value, "busy": self.busy}
        return row if self.short_seconds is None else {**row, "short_seconds": round(self.short_seconds, 1)}


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The state of the fleet at the moment `at`."""

    at: Moment
    master_snapshot: MasterSnapshot
    state: str  # the state of the master, or LOST
    ready: Health  # whether this node accepts work
    pools: tuple[PoolSnapshot, ...]
    processes: tuple[ProcessSnapshot, ...]

    def with_shortages(self, seconds: Mapping[str, float]) -> "FleetSnapshot":
        """Return a copy of this snapshot in which each pool has the time for which it has lacked workers. `seconds`
        maps pools to this time. A pool that is not in `seconds` gets 0."""
        pools = (replace(pool, short_seconds=seconds.get(pool.facts.name, 0.0)) for pool in self.pools)
        return replace(self, pools=tuple(pools))

    def to_json(self) -> Json:
        """Return the fleet as JSON, as the control socket and `/status.json` show it. `docs/status.md` explains each
        key."""
        master_snapshot = self.master_snapshot
        now, wall = self.at
        started_at = master_snapshot.started_at
        quiet_since = master_snapshot.quiet_since
        return {
            "at": round(wall, 3),
            "version": __version__,
            **{name: getattr(master_snapshot, name) for name in _UNCHANGED},
            "state": self.state,
            "ready": self.ready.to_json(),
            "started_at": None if started_at is None else round(wall - (now - started_at), 1),
            "quiet_seconds": 0.0 if quiet_since is None else round(now - quiet_since, 1),
            "held": [held.row(now) for held in master_snapshot.held],
            "closed": [closed.row(now) for closed in master_snapshot.closed],
            "last_reload": dated(master_snapshot.last_reload, now, wall),
            "last_death": dated(master_snapshot.last_death, now, wall),
            "events": [dated(event._asdict(), now, wall) for event in master_snapshot.events],
            "pools": [pool.to_json() for pool in self.pools],
            "processes": [process.to_json() for process in self.processes],
        }


# The fields of the master's snapshot that are copied to the JSON without changes.
_UNCHANGED: Final = (
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


def snapshot(
    slots: Iterable[Member], master_snapshot: MasterSnapshot, at: Moment, limits: HeartbeatLimits | None
) -> FleetSnapshot:
    """Return the state of the fleet, based on the live processes in `slots` and on `master_snapshot`.

    `limits`: the maximum permitted times without a heartbeat, or None if no master is expected, as in `rota exporter`.
    """
    members = {member.slot: member for member in slots}
    children = {child.slot: child for child in master_snapshot.children}
    ready = readiness(tuple(members.values()), master_snapshot, at.now, limits)
    processes = tuple(
        _process(slot, children.get(slot), members.get(slot), at.now) for slot in sorted(members | children)
    )
    return FleetSnapshot(
        at, master_snapshot, state_of(members.values()), ready, _pools(master_snapshot, processes), processes
    )


def state_of(members: Iterable[Member]) -> str:
    """Return the state of the fleet, which the master's process reports in its slot. Returns LOST if there is no such
    process."""
    master = next((member for member in members if member.role is Role.MASTER), None)
    return LOST if master is None else FLEET_STATES.get(master.phase, LOST)


def _process(slot: int, child: ChildFacts | None, member: Member | None, now: float) -> ProcessSnapshot:
    child = child or ChildFacts(slot)
    ready_seconds = None if child.ready_at is None else round(now - child.ready_at, 1)
    return ProcessSnapshot(child, role_of(slot), member, ready_seconds)


def _pools(master_snapshot: MasterSnapshot, processes: Iterable[ProcessSnapshot]) -> tuple[PoolSnapshot, ...]:
    held = {row.pool: PoolState(row.state) for row in master_snapshot.held if row.role == Role.WORKER}
    busy: Counter[str | None] = Counter()
    for process in processes:
        if process.role is Role.WORKER and process.member is not None:
            busy[process.child.pool] += len(process.member.tasks)
    return tuple(
        PoolSnapshot(pool, held.get(pool.name, PoolState.RUNNING), busy[pool.name]) for pool in master_snapshot.pools
    )


_NO_TASK: Final[Json] = {"task": None, "task_age_seconds": None, "progress": None}


def rows_by_task(processes: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the rows of a table of processes. A process that runs several tasks has one row for each of them. Any
    other process has a single row, which includes its task if it is running one. The field `where` contains the slot of
    the process. If the process runs several tasks, the index of the task follows the slot, for example `12.3`."""
    rows: list[Json] = []
    for process in processes:
        slot = process["slot"]
        tasks = process["tasks"]
        if len(tasks) > 1:
            rows += [{**process, **task, "where": f"{slot}.{task['place']}"} for task in tasks]
        else:
            rows.append({**process, **(tasks[0] if tasks else _NO_TASK), "where": slot})
    return rows


# The report of this node to the other nodes


class WorkerLoad(NamedTuple):
    """The values that one worker adds to the sums in the report of its node: its running tasks, its concurrency, and
    whether it is quiet."""

    tasks: int
    concurrency: int
    is_quiet: bool


def node_report(master_snapshot: MasterSnapshot, state: str, workers: Collection[WorkerLoad]) -> NodeReport:
    """Return the report of the node. The master sends this report with each heartbeat, and the exporter shows it on the
    status page."""
    return NodeReport(
        state=state,
        version=__version__,
        url=master_snapshot.url,
        workers=len(workers),
        desired=sum(pool.desired for pool in master_snapshot.pools),
        busy=sum(worker.tasks for worker in workers),
        concurrency=sum(worker.concurrency for worker in workers),
        quiet=sum(worker.is_quiet for worker in workers),
        last_death=None if master_snapshot.last_death is None else death_text(master_snapshot.last_death),
    )
