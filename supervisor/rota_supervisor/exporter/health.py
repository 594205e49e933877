"""Whether the fleet is alive and ready, judged from what the slots show. Redis is never asked.

Alive says that the master's loop turns; it must not depend on Redis, or an outage of Redis would restart
every pod. Ready says that this node takes work now.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT, Phase, boottime_ns
from rota.telemetry import metrics as m
from rota_supervisor.exporter.fleet import NANOSECONDS, Member, members
from rota_supervisor.exporter.regions import Regions
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.layout import Role
from rota_supervisor.notice import FLEET_STATES, Json, Notice, sentence

LIVE_TICKS: Final = 3  # the master may miss two beats
_STATES_OF_MASTER: Final = FLEET_STATES | {Phase.EMPTY: "gone", Phase.IDLE: "ready", Phase.BUSY: "busy"}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing that was looked at, and what was seen, for people."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """All checks of one question."""

    checks: tuple[HealthCheck, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def row(self) -> Json:
        """Return it as `/readyz?verbose` and `/status.json` show it."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


class Probe:
    """What a probe asks for, read from the slots of `memory`: it takes a millisecond, and waits for nothing. Not safe
    for two threads at once: each has its own."""

    def __init__(self, settings: ExporterSettings, memory: SlotMemory, master_pid: int) -> None:
        self._settings = settings
        self._memory = memory
        self._master_pid = master_pid
        self._notice = Notice(memory.slot(MASTER_SLOT).spare)
        self.regions = Regions(memory, settings.max_series)

    def alive(self) -> HealthVerdict:
        """Judge whether the master lives."""
        return alive(members(self._memory, (MASTER_SLOT,), self._master_pid), self._settings.tick_seconds)

    def ready(self) -> HealthVerdict:
        """Judge whether this node takes work."""
        return ready(
            self.fleet(),
            self.held(),
            tick_seconds=self._settings.tick_seconds,
            beat_seconds=self._settings.beat_seconds,
            redis_up=self.regions.read_slot(MASTER_SLOT).value(m.REDIS_UP) == 1,
        )

    def fleet(self) -> tuple[Member, ...]:
        """Return all living processes."""
        return members(self._memory, self.regions.touched(), self._master_pid)

    def held(self) -> tuple[Json, ...]:
        """Return the pools whose starts are held back."""
        now = boottime_ns() / NANOSECONDS
        return tuple(held.row(now) for held in self._notice.read())


def alive(fleet: Iterable[Member], tick_seconds: float) -> HealthVerdict:
    """Judge whether the master beats."""
    return HealthVerdict((_master_beats(_master_of(fleet), tick_seconds),))


def ready(
    fleet: tuple[Member, ...], held: Iterable[Json], *, tick_seconds: float, beat_seconds: float, redis_up: bool
) -> HealthVerdict:
    """Judge whether this node takes work: the master runs the fleet, a worker and a poller serve, Redis answers, and no
    pool is held back in its starts (`held`: rows of the master's notice)."""
    master = _master_of(fleet)
    phase = Phase.EMPTY if master is None else master.phase
    reaches = "reaches" if redis_up else "does not reach"
    held_back = "; ".join(map(sentence, held))
    return HealthVerdict(
        (
            _master_beats(master, tick_seconds),
            HealthCheck("master_serves", phase is Phase.IDLE, f"the master is {_STATES_OF_MASTER[phase]}"),
            _one_serves(Role.WORKER, fleet, beat_seconds),
            _one_serves(Role.POLLER, fleet, beat_seconds),
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
    return HealthCheck(f"{role}_serves", serving > 0, f"{serving} of {len(of_role)} {role}s serve")


def serves(member: Member, beat_seconds: float) -> bool:
    """Whether a worker or poller does its work. Inside a task its deadline rules, not the beat."""
    if member.phase is Phase.BUSY and member.task_left_seconds > 0:
        return True
    return member.phase in (Phase.IDLE, Phase.BUSY) and member.beat_age_seconds <= beat_seconds
