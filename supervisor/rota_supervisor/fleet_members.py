"""The living processes of this node's fleet, as their slots show them; and whether it is alive and ready.

One rule judges for `/livez` and `/readyz`, `rota health` and `rota status`. It is pure, and Redis is never asked. Alive
says that the master's loop turns; it must not depend on Redis, or an outage of Redis would restart every pod. Ready
says that this node takes work now.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase, Slot
from rota.durations import NANOSECONDS
from rota.protocol.progress import Progress, progress_row, read_progress
from rota_supervisor.layout import Role, role_of
from rota_supervisor.notice import FLEET_STATES, Json, Notice, first_sentence, redis_warnings, sentence

LIVE_TICKS: Final = 3  # the master may miss two beats
_STATES_OF_MASTER: Final = FLEET_STATES | {Phase.EMPTY: "gone", Phase.IDLE: "ready", Phase.BUSY: "busy"}


@dataclass(frozen=True, slots=True)
class MemberTask:
    """A task that runs, for so long by now. `left_seconds`: to its deadline, infinite without one."""

    task: TaskInSlot
    age_seconds: float
    left_seconds: float
    progress: Progress | None = None

    def to_json(self) -> Json:
        """Return its row in JSON."""
        task, age, left = self.task, self.age_seconds, self.left_seconds
        return {
            "place": task.place,
            "task": {"id": task.id, "name": task.name, "queue": task.queue},
            "task_age_seconds": round(age, 3),
            "limit_seconds": round(age + left, 3) if task.deadline_ns else None,
            "left_seconds": round(left, 3) if task.deadline_ns else None,
            "progress": progress_row(self.progress),
        }


@dataclass(frozen=True, slots=True)
class Member:
    """A living process of the fleet, and the tasks that it runs, of at most as many as it has `places`."""

    slot: int
    role: Role
    pid: int
    phase: Phase
    beat_age_seconds: float
    tasks: tuple[MemberTask, ...] = ()
    places: int = 1


def member_in(number: int, slot: Slot, now_ns: int) -> Member:
    """Read from a slot what its process shows at `now_ns`, of CLOCK_BOOTTIME."""
    tasks = tuple(_member_task(slot, task, now_ns) for task in slot.running())
    beat_age = max(0, now_ns - slot.beat_ns) / NANOSECONDS
    return Member(number, role_of(number), slot.pid, slot.phase, beat_age, tasks, slot.places)


def _member_task(slot: Slot, task: TaskInSlot, now_ns: int) -> MemberTask:
    age = max(0, now_ns - task.started_ns) / NANOSECONDS
    left = (task.deadline_ns - now_ns) / NANOSECONDS if task.deadline_ns else math.inf
    return MemberTask(task, age, left, read_progress(slot.record(task.place).progress_of(task.entry)))


# Alive and ready


class Patience(NamedTuple):
    """For how long a process may be silent: the master beats every `tick_seconds`, and a child that runs no task has
    `beat_seconds`."""

    tick_seconds: float
    beat_seconds: float


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing that was looked at, and what was seen, for people."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Health:
    """All checks of one question; and what is wrong although they hold, for people."""

    checks: tuple[HealthCheck, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> Json:
        """Return it as `/readyz?verbose` and the status show it."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks], "warnings": list(self.warnings)}


def in_one_line(health: Mapping[str, Any]) -> str:
    """Return a health, as JSON has it, in words: "ok" or what failed, then the warnings."""
    said = ["ok"] if health["ok"] else [check["seen"] for check in health["checks"] if not check["ok"]]
    return "; ".join((*said, *health["warnings"]))


def liveness(members: Iterable[Member], tick_seconds: float) -> Health:
    """Judge whether the master beats, which it does every `tick_seconds`."""
    return Health((_master_beats(_master_of(members), tick_seconds),))


def readiness(members: Sequence[Member], notice: Notice, now: float, patience: Patience | None) -> Health:
    """Judge whether this node takes work: the master runs the fleet, a worker and a poller serve, Redis answers, and no
    pool is held back in its starts. `patience`: None where no master is expected; then only Redis counts."""
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
    """Whether a worker or poller does its work. Inside a task its deadline rules, not the beat; but one that runs
    several beats while they run."""
    alone = member.tasks[0] if member.tasks and member.places <= 1 else None
    if member.phase is Phase.BUSY and alone is not None and alone.left_seconds > 0:
        return True
    return member.phase in (Phase.IDLE, Phase.BUSY) and member.beat_age_seconds <= beat_seconds
