"""What a worker does next: one look at its situation, one step. Pure."""

from dataclasses import dataclass
from enum import Enum

from rota.protocol.replies import TurnReply, TurnWord


class Step(Enum):
    """`RUN` what is claimed; `CLAIM` or only `SETTLE` by a turn; `PARK` at the doorbells; `HOLD` still
    while nothing may be claimed; `GIVE_BACK` what was claimed and not started; `LEAVE`."""

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

    `lost`: the owner is no longer registered. `leaving`: a stop was asked for. `fenced`: the lease may have run out.
    `quiet`: the master asked it to claim nothing. `spent`: it has made all its attempts. `waiting`: tasks are claimed
    and not started; `overrun`: so long ago that they may have been given back. `owing`: outcomes or tokens that no
    answer has named yet. `idle`: the last claim found nothing, and nobody rang since. `turn_due`: the last turn was
    long ago.
    """

    lost: bool = False
    leaving: bool = False
    fenced: bool = False
    quiet: bool = False
    spent: bool = False
    waiting: bool = False
    overrun: bool = False
    owing: bool = False
    idle: bool = False
    turn_due: bool = False


def decide(situation: Situation) -> Step:
    """The next step."""
    if situation.lost:
        return Step.LEAVE
    if situation.leaving:
        return _on_the_way_out(situation)
    if situation.fenced or situation.quiet or situation.spent:
        return _claiming_nothing(situation)
    if situation.waiting:
        return Step.GIVE_BACK if situation.overrun else Step.RUN
    if situation.idle and not situation.owing and not situation.turn_due:
        return Step.PARK
    return Step.CLAIM


def _claiming_nothing(situation: Situation) -> Step:
    if situation.waiting:
        return Step.GIVE_BACK  # others may start it; and it is not to be charged with a lease that may be lost
    return Step.SETTLE if situation.owing or situation.turn_due else Step.HOLD


def _on_the_way_out(situation: Situation) -> Step:
    if situation.waiting:
        return Step.GIVE_BACK
    return Step.SETTLE if situation.owing else Step.LEAVE


def is_passed_on(queue: str, reply: TurnReply) -> bool:
    """Whether nobody has to be told any more of the token that woke this worker.

    The turn behind it rang where it claimed and left something; when it found nothing at all, there is nothing to ring
    for. Only a claim from another queue leaves this one with entries that nobody was told of.
    """
    if reply.word is not TurnWord.OK:
        return False
    return not reply.claims or reply.claims[0].entry.queue == queue
