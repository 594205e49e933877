"""The stages of stopping: workers leave first, then everything else. One deadline for all of a stage."""

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.planning.targets import LEAVE_SECONDS, Stage, Stop


def begin(stop: Stop, now: float, drain_seconds: float, *, at_once: bool) -> Stop:
    """What a request to stop makes of it: a second one never slows the first."""
    if at_once:
        return stop if stop.stage is Stage.AT_ONCE else Stop(Stage.AT_ONCE, now + LEAVE_SECONDS)
    return Stop(Stage.WORKERS, now + drain_seconds) if stop.stage is Stage.RUNNING else stop


def advance(stop: Stop, fleet: Fleet, now: float) -> Stop:
    """Go on to the rest when the workers are gone and what they held is given back, or that takes too long."""
    if stop.stage is Stage.WORKERS and (not fleet.of(Role.WORKER) or _only_retiring_for_too_long(stop, fleet, now)):
        return Stop(Stage.REST, now + LEAVE_SECONDS)
    return stop


def is_over(stop: Stop, fleet: Fleet, now: float) -> bool:
    """Whether nothing is left to wait for."""
    if stop.stage not in (Stage.REST, Stage.AT_ONCE) or any(map(_is_there, fleet)):
        return False
    return len(fleet) == 0 or now > stop.leave_by


def deadlines(stop: Stop) -> tuple[float, float]:
    """The instants after which `advance` and `is_over` may say something else, whatever the children do."""
    return stop.leave_by, stop.leave_by + LEAVE_SECONDS


def _only_retiring_for_too_long(stop: Stop, fleet: Fleet, now: float) -> bool:
    """Redis is away: the leases run out by themselves, and then what was held is given back."""
    return now > stop.leave_by + LEAVE_SECONDS and not any(map(_is_there, fleet.of(Role.WORKER)))


def _is_there(child: Child) -> bool:
    return child.state is not State.EXITED
