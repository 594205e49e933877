"""The fleet at one instant, as its slots and `/proc` show it; and whether it is alive and ready. Redis is never asked.

Alive says that the master's loop turns; it must not depend on Redis, or an outage of Redis would restart
every pod. Ready says that this node takes work now.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from rota.child.life import NANOSECONDS
from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import TaskInSlot
from rota.child.slot_texts import Board
from rota.child.slots import MASTER_SLOT, Phase, Slot, boottime_ns
from rota.protocol.progress import Progress, read_progress
from rota.telemetry.log_events import REDIS_BACK, REDIS_LOST
from rota.telemetry.metrics import REDIS_EVICTS_KEYS, REDIS_ROUND_TRIP, REDIS_UP
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.regions import Regions
from rota_supervisor.exporter.series import SeriesBound
from rota_supervisor.layout import Role, role_of
from rota_supervisor.notice import FLEET_STATES, Json, Notice, first_sentence, redis_warnings, sentence
from rota_supervisor.process import parent_of

_SET_BY_ITS_PROCESS: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.DRAINING, Phase.QUIET})
LIVE_TICKS: Final = 3  # the master may miss two beats
_STATES_OF_MASTER: Final = FLEET_STATES | {Phase.EMPTY: "gone", Phase.IDLE: "ready", Phase.BUSY: "busy"}


# By the slots


@dataclass(frozen=True, slots=True)
class MemberTask:
    """A task that runs, for so long by now. `left_seconds`: to its deadline, infinite without one."""

    task: TaskInSlot
    age_seconds: float
    left_seconds: float
    progress: Progress | None = None


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

    @property
    def has_begun(self) -> bool:
        """Whether the gauges in its slot are its own, not its predecessor's."""
        return self.role is Role.MASTER or self.phase in _SET_BY_ITS_PROCESS


def members(memory: SlotMemory, touched: Iterable[int], master_pid: int) -> tuple[Member, ...]:
    """Return the living processes among the slots that were ever written to, by slot."""
    now_ns = boottime_ns()
    found = (_member(number, memory.slot(number), now_ns) for number in touched)
    # The master or its child that lives, and not a stranger who got the number later.
    return tuple(each for each in found if each.pid == master_pid or (each.pid and parent_of(each.pid) == master_pid))


def _member(number: int, slot: Slot, now_ns: int) -> Member:
    tasks = tuple(_member_task(slot, task, now_ns) for task in slot.running())
    beat_age = max(0, now_ns - slot.beat_ns) / NANOSECONDS
    return Member(number, role_of(number), slot.pid, slot.phase, beat_age, tasks, slot.places)


def _member_task(slot: Slot, task: TaskInSlot, now_ns: int) -> MemberTask:
    age = max(0, now_ns - task.started_ns) / NANOSECONDS
    left = (task.deadline_ns - now_ns) / NANOSECONDS if task.deadline_ns else math.inf
    return MemberTask(task, age, left, read_progress(slot.record(task.place).progress_of(task.entry)))


# Alive and ready


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

    def row(self) -> Json:
        """Return it as `/readyz?verbose` and `/status.json` show it."""
        return {
            "ok": self.ok,
            "checks": [asdict(check) for check in self.checks],
            "warnings": list(self.warnings),
        }


class Probe:
    """What a probe asks for, read from the slots of `memory`: it takes a millisecond, and waits for nothing. Not safe
    for two threads at once: each has its own."""

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int) -> None:
        self._settings = settings
        self._memory = memory
        self._master_pid = master_pid
        self._board = Board(memory.slot(MASTER_SLOT).far_spare)
        self.regions = Regions(memory, SeriesBound(room=0))

    def alive(self) -> Health:
        return alive(members(self._memory, (MASTER_SLOT,), self._master_pid), self._settings)

    def ready(self) -> Health:
        said = self.regions.read_slot(MASTER_SLOT)
        redis_up, evicts = said.value(REDIS_UP) == 1, said.value(REDIS_EVICTS_KEYS) == 1
        warnings = tuple(redis_warnings(said.value(REDIS_ROUND_TRIP), evicts_keys=evicts)) if redis_up else ()
        if self._settings.alone:
            reaches = "reaches" if redis_up else "does not reach"
            return Health((HealthCheck("redis", redis_up, f"this exporter {reaches} Redis"),), warnings)
        notice = self.notice()
        found = ready(self.fleet(), held_at(now_seconds(), notice), self._settings, redis_up=redis_up)
        return replace(_with_refusal(found, notice), warnings=warnings)

    def fleet(self) -> tuple[Member, ...]:
        return () if self._settings.alone else members(self._memory, self.regions.touched(), self._master_pid)

    def notice(self) -> Notice:
        """Return what the master says."""
        return Notice.from_json(self._board.read())

    def stray_lists(self, fleet: Iterable[Member]) -> tuple[Json, ...]:
        """Return the lists that look like queues and are not, as the pollers of this node found: `key`, `fault`."""
        pollers = (member.slot for member in fleet if member.role is Role.POLLER)
        texts = (Board(self._memory.slot(slot).spare).read() for slot in pollers)
        return tuple(row for text in texts if text for row in json.loads(text))


def _with_refusal(found: Health, notice: Notice) -> Health:
    """Say of a Redis that answers, and does nothing for now, what it answers."""
    lost = next((event for event in reversed(notice.events) if event.event in (REDIS_LOST, REDIS_BACK)), None)
    if lost is None or not lost.fields.get("refused"):
        return found
    said = f"Redis refuses: {first_sentence(lost.fields['error'])}"
    checks = (replace(check, seen=said) if check.name == "redis" and not check.ok else check for check in found.checks)
    return replace(found, checks=tuple(checks))


def now_seconds() -> float:
    """The clock of the slots and of the notice."""
    return boottime_ns() / NANOSECONDS


def held_at(now: float, notice: Notice) -> tuple[Json, ...]:
    """Return the pools whose starts are held back."""
    return tuple(held.row(now) for held in notice.held)


def alive(fleet: Iterable[Member], settings: ExporterSettings) -> Health:
    """Judge whether the master beats."""
    return Health((_master_beats(_master_of(fleet), settings.tick_seconds),))


def ready(fleet: tuple[Member, ...], held: Iterable[Json], settings: ExporterSettings, *, redis_up: bool) -> Health:
    """Judge whether this node takes work: the master runs the fleet, a worker and a poller serve, Redis answers, and no
    pool is held back in its starts (`held`: rows of the master's notice)."""
    master = _master_of(fleet)
    phase = Phase.EMPTY if master is None else master.phase
    reaches = "reaches" if redis_up else "does not reach"
    held_back = "; ".join(map(sentence, held))
    return Health(
        (
            _master_beats(master, settings.tick_seconds),
            HealthCheck("master_serves", phase is Phase.IDLE, f"the master is {_STATES_OF_MASTER[phase]}"),
            _one_serves(Role.WORKER, fleet, settings.beat_seconds),
            _one_serves(Role.POLLER, fleet, settings.beat_seconds),
            HealthCheck("redis", redis_up, f"the master {reaches} Redis"),
            HealthCheck("restarts", not held_back, held_back or "no pool is in back-off"),
        )
    )


def _master_of(fleet: Iterable[Member]) -> Member | None:
    return next((member for member in fleet if member.role is Role.MASTER), None)


def _master_beats(master: Member | None, tick_seconds: float) -> HealthCheck:
    if master is None:
        return HealthCheck("master_beats", ok=False, seen="there is no master")
    age, limit = master.beat_age_seconds, tick_seconds * LIVE_TICKS
    return HealthCheck("master_beats", age < limit, f"last beat {age:.1f} s ago, limit {limit:g} s")


def _one_serves(role: Role, fleet: Iterable[Member], beat_seconds: float) -> HealthCheck:
    of_role = [member for member in fleet if member.role is role]
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
