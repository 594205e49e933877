"""Whether the fleet is alive and ready: pure judgments on what the slots show. Redis is never asked.

Alive says that the master's loop turns; it must not depend on Redis, or an outage of Redis would restart
every pod. Ready says that this node takes work now.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rota.child.slots import Phase
from rota_supervisor.exporter.fleet import Member, master_of
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json, sentence

LIVE_TICKS = 3  # the master may miss two beats


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


def alive(fleet: tuple[Member, ...], tick_seconds: float) -> HealthVerdict:
    """Whether the master beats."""
    return HealthVerdict((_master_beats(master_of(fleet), tick_seconds * LIVE_TICKS),))


def ready(
    fleet: tuple[Member, ...], held: Iterable[Json], *, tick_seconds: float, beat_seconds: float, redis_up: bool
) -> HealthVerdict:
    """Whether this node takes work: the master runs the fleet, a worker and a poller serve, Redis answers, and no
    pool is held back in its starts (`held`: rows of the master's notice)."""
    master = master_of(fleet)
    return HealthVerdict(
        (
            _master_beats(master, tick_seconds * LIVE_TICKS),
            _master_serves(master),
            _one_serves(Role.WORKER, fleet, beat_seconds),
            _one_serves(Role.POLLER, fleet, beat_seconds),
            HealthCheck(
                "redis", redis_up, "the master reaches Redis" if redis_up else "the master does not reach Redis"
            ),
            _nothing_held_back(held),
        )
    )


def _nothing_held_back(held: Iterable[Json]) -> HealthCheck:
    seen = "; ".join(map(sentence, held))
    return HealthCheck("restarts", not seen, seen or "no pool is in back-off")


def serves(member: Member, beat_seconds: float) -> bool:
    """Whether a worker or poller does its work. Inside a task its deadline rules, not the beat."""
    match member.phase:
        case Phase.IDLE:
            return member.beat_age_seconds <= beat_seconds
        case Phase.BUSY:
            return member.beat_age_seconds <= beat_seconds or member.task_left_seconds > 0
        case _:
            return False


def _master_beats(master: Member | None, limit_seconds: float) -> HealthCheck:
    if master is None:
        return HealthCheck("master_beats", ok=False, seen="there is no master")
    age = master.beat_age_seconds
    return HealthCheck("master_beats", age < limit_seconds, f"last beat {age:.1f} s ago, limit {limit_seconds:g} s")


def _master_serves(master: Member | None) -> HealthCheck:
    phase = Phase.EMPTY if master is None else master.phase
    return HealthCheck("master_serves", phase is Phase.IDLE, f"the master is {_PHASES_OF_MASTER[phase]}")


_PHASES_OF_MASTER = {
    Phase.EMPTY: "gone",
    Phase.BOOTING: "starting",
    Phase.IDLE: "ready",
    Phase.BUSY: "busy",
    Phase.DRAINING: "draining",
    Phase.QUIET: "quiet",
}


def _one_serves(role: Role, fleet: Iterable[Member], beat_seconds: float) -> HealthCheck:
    of_role = [member for member in fleet if member.role is role]
    serving = sum(serves(member, beat_seconds) for member in of_role)
    return HealthCheck(f"{role}_serves", serving > 0, f"{serving} of {len(of_role)} {role}s serve")
