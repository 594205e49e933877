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
# How long a process with nothing in hand gets to leave while Redis is away.
IDLE_SECONDS: Final = {Stage.WORKERS: 0.9, Stage.REST: 0.6, Stage.AT_ONCE: 0.9}


@dataclass(frozen=True, slots=True)
class Stop:
    """The stage of stopping, when it began, when who is still there is killed (CLOCK_BOOTTIME seconds), and whether
    Redis is away meanwhile."""

    stage: Stage = Stage.RUNNING
    began: float = math.inf
    leave_by: float = math.inf
    is_without_redis: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether the fleet was asked to stop."""
        return self.stage is not Stage.RUNNING

    @property
    def idle_leave_by(self) -> float:
        """When those that have nothing in hand are killed if that is sooner, while Redis is away."""
        return self.began + IDLE_SECONDS[self.stage] if self.is_without_redis else math.inf


def begin(stop: Stop, now: float, drain_seconds: float, *, at_once: bool) -> Stop:
    """Return the stop after a request to stop; a second request never delays the first."""
    if at_once:
        return stop if stop.stage is Stage.AT_ONCE else Stop(Stage.AT_ONCE, now, now + LEAVE_SECONDS)
    return stop if stop.is_asked else Stop(Stage.WORKERS, now, now + drain_seconds)


def advance(stop: Stop, children: Children, now: float, silent_since: float) -> Stop:
    """Note whether Redis is away, which owes an answer since `silent_since`; go on to the rest when no worker is waited
    for any more."""
    if not stop.is_asked:
        return stop
    stop = replace(stop, is_without_redis=now - silent_since > AWAY_SECONDS)
    workers = children.of(Role.WORKER)
    if stop.stage is not Stage.WORKERS or any(_is_waited_for(child, stop, now) for child in workers):
        return stop
    return Stop(Stage.REST, now, now + LEAVE_SECONDS, stop.is_without_redis)


def _is_waited_for(worker: Child, stop: Stop, now: float) -> bool:
    """Whether it is still there, or its owner is to be retired. When Redis takes too long for that, the lease runs out
    by itself, and then what was held is given back."""
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
