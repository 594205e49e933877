"""The stages of stopping: workers leave first, then everything else. One deadline for all of a stage.

While Redis is away nobody waits for it who has nothing in hand: such a fleet is gone within 2 s, whatever hangs. Tasks
that run and outcomes that are not settled yet are given the whole drain, and RETIRE_SECONDS to be given back.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children, ChildState


class Stage(Enum):
    """RUNNING, then WORKERS leave, then the REST: pollers and exporter last, so that due tasks and numbers go
    on as long as somebody works. AT_ONCE kills all."""

    RUNNING = auto()
    WORKERS = auto()
    REST = auto()
    AT_ONCE = auto()


# What zygote, pollers and exporter get to leave; all to retire, when the fleet leaves at once.
LEAVE_SECONDS: Final = 5.0
RETIRE_SECONDS: Final = 3.0  # from the end of the drain on; with the rest, and some time to spare, 5 s
AWAY_SECONDS: Final = 0.8  # so long without an answer that was asked for: Redis is away
# What who has nothing in hand gets while Redis is away.
IDLE_SECONDS: Final = {Stage.WORKERS: 0.9, Stage.REST: 0.6, Stage.AT_ONCE: 0.9}


@dataclass(frozen=True, slots=True)
class Stop:
    """The stage of stopping, when it began, and when who is still there is killed (CLOCK_BOOTTIME seconds).
    `idle_leave_by`: of those that have nothing in hand, sooner while Redis is away."""

    stage: Stage = Stage.RUNNING
    began: float = math.inf
    leave_by: float = math.inf
    idle_leave_by: float = math.inf

    @property
    def is_asked(self) -> bool:
        """Whether the fleet was asked to stop."""
        return self.stage is not Stage.RUNNING

    @property
    def is_without_redis(self) -> bool:
        """Whether Redis is away while the fleet leaves."""
        return self.idle_leave_by < math.inf


def begin(stop: Stop, now: float, drain_seconds: float, *, at_once: bool) -> Stop:
    """What a request to stop makes of it: a second one never slows the first."""
    if at_once:
        return stop if stop.stage is Stage.AT_ONCE else Stop(Stage.AT_ONCE, now, now + LEAVE_SECONDS)
    return stop if stop.is_asked else Stop(Stage.WORKERS, now, now + drain_seconds)


def advance(stop: Stop, children: Children, now: float, silent_since: float) -> Stop:
    """Note whether Redis is away, which has owed an answer since `silent_since`, and go on to the rest when no worker
    is waited for any more."""
    if not stop.is_asked:
        return stop
    is_away = now - silent_since > AWAY_SECONDS
    stop = _hurried(stop, is_away=is_away)
    workers = children.of(Role.WORKER)
    if stop.stage is Stage.WORKERS and not any(_is_waited_for(child, stop, now) for child in workers):
        stop = _hurried(Stop(Stage.REST, now, now + LEAVE_SECONDS), is_away=is_away)
    return stop


def _hurried(stop: Stop, *, is_away: bool) -> Stop:
    return replace(stop, idle_leave_by=stop.began + IDLE_SECONDS[stop.stage] if is_away else math.inf)


def _is_waited_for(worker: Child, stop: Stop, now: float) -> bool:
    """Unless that takes too long: the lease runs out by itself, and then what was held is given back."""
    return _is_there(worker) or (_is_to_be_retired(worker, stop) and now <= stop.leave_by + RETIRE_SECONDS)


def _is_there(child: Child) -> bool:
    return child.state is not ChildState.EXITED


def _is_to_be_retired(child: Child, stop: Stop) -> bool:
    return child.in_hand or not stop.is_without_redis


def is_over(stop: Stop, children: Children, now: float) -> bool:
    """Whether nothing is left to wait for."""
    if stop.stage in (Stage.RUNNING, Stage.WORKERS) or any(map(_is_there, children)):
        return False
    to_be_retired = any(_is_to_be_retired(child, stop) for child in children)
    return stop.stage is Stage.REST or now > stop.leave_by or not to_be_retired


def ends_by(stop: Stop, children: Children) -> float:
    """When it is over at the latest, as long as Redis is away."""
    if stop.stage is not Stage.WORKERS:
        return stop.leave_by if in_hand(children) else stop.idle_leave_by
    workers_by = stop.leave_by + RETIRE_SECONDS if in_hand(children) else stop.idle_leave_by
    return workers_by + IDLE_SECONDS[Stage.REST]


def in_hand(children: Children) -> int:
    """How many workers have tasks or outcomes in hand, living and dead."""
    return sum(child.in_hand for child in children.of(Role.WORKER))


def deadlines(stop: Stop, silent_since: float) -> tuple[float, ...]:
    """The instants after which `advance` and `is_over` may say something else, whatever the children do."""
    return stop.leave_by, stop.leave_by + RETIRE_SECONDS, silent_since + AWAY_SECONDS
