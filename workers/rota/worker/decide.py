"""What a worker does next: one look at its situation, one step. Pure."""

from dataclasses import dataclass
from enum import Enum


class Step(Enum):
    """`RUN` the next claimed task; `CLAIM` or only `SETTLE` by a turn; `PARK` at the doorbells; `HOLD` still
    while the fence is up; `GIVE_BACK` what was claimed and not started; `LEAVE`."""

    RUN = "run"
    CLAIM = "claim"
    SETTLE = "settle"
    PARK = "park"
    HOLD = "hold"
    GIVE_BACK = "give back"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the next step depends on.

    `lost`: the owner is no longer registered. `leaving`: a stop was asked for, or it is time to recycle.
    `fenced`: the lease may have run out. `waiting`: tasks are claimed and not started. `owing`: outcomes or
    tokens that no answer has named yet. `idle`: the last claim found nothing, and nobody rang since.
    `turn_due`: the last turn was long ago.
    """

    lost: bool = False
    leaving: bool = False
    fenced: bool = False
    waiting: bool = False
    owing: bool = False
    idle: bool = False
    turn_due: bool = False


def decide(situation: Situation) -> Step:
    """The next step."""
    if situation.lost:
        return Step.LEAVE
    if situation.leaving:
        return _on_the_way_out(situation)
    if situation.fenced:
        return Step.SETTLE if situation.owing or situation.turn_due else Step.HOLD
    if situation.waiting:
        return Step.RUN
    if situation.idle and not situation.owing and not situation.turn_due:
        return Step.PARK
    return Step.CLAIM


def _on_the_way_out(situation: Situation) -> Step:
    if situation.waiting:
        return Step.GIVE_BACK
    return Step.SETTLE if situation.owing else Step.LEAVE
