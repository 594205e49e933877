"""What a worker does next: a table of what it may do and what is to be seen to first. Pure."""

from enum import Enum
from typing import Final

from rota.protocol.replies import TurnReply, TurnWord


class Step(Enum):
    """`RUN` what is claimed; `CLAIM` or only `SETTLE` by a turn; `PARK` at the doorbells; `HOLD` still
    while nothing may be claimed; `GIVE_BACK` what was claimed and not started; `ASK` once what an unanswered
    claim has brought; `LEAVE`."""

    RUN = "run"
    CLAIM = "claim"
    SETTLE = "settle"
    PARK = "park"
    HOLD = "hold"
    GIVE_BACK = "give back"
    ASK = "ask"
    LEAVE = "leave"


class Mode(Enum):
    """What this worker may do now; of several the first holds. `LOST`: its owner is no longer registered. `LEAVING`: a
    stop was asked for. `FENCED`: its lease may have run out. `QUIET`: the master asked it to claim nothing. `SPENT`: it
    has made all its attempts. `WORKING`: none of these."""

    LOST = "lost"
    LEAVING = "leaving"
    FENCED = "fenced"
    QUIET = "quiet"
    SPENT = "spent"
    WORKING = "working"


class Need(Enum):
    """What is to be seen to first. `OVERRUN`: tasks were claimed so long ago that they may have been given back.
    `CLAIMED`: tasks are claimed and not started. `UNTOLD`: there are outcomes or tokens that no answer has named yet.
    `UNANSWERED`: work was asked for, and no answer has come. `TURN`: the last turn was long ago. `SLEEP`: the last
    claim found nothing, and nobody rang since. `WORK`: none of these."""

    OVERRUN = "overrun"
    CLAIMED = "claimed"
    UNTOLD = "untold"
    UNANSWERED = "unanswered"
    TURN = "turn"
    SLEEP = "sleep"
    WORK = "work"


# Who claims nothing gives back what it has not started: others may start it, and it is not to be charged with a lease
# that may be lost.
_RESTING: Final = {
    Need.OVERRUN: Step.GIVE_BACK,
    Need.CLAIMED: Step.GIVE_BACK,
    Need.UNTOLD: Step.SETTLE,
    Need.UNANSWERED: Step.SETTLE,
    Need.TURN: Step.SETTLE,
    Need.SLEEP: Step.HOLD,
    Need.WORK: Step.HOLD,
}
STEPS: Final = {
    Mode.LOST: dict.fromkeys(Need, Step.LEAVE),
    Mode.LEAVING: {
        Need.OVERRUN: Step.GIVE_BACK,
        Need.CLAIMED: Step.GIVE_BACK,
        Need.UNTOLD: Step.SETTLE,
        Need.UNANSWERED: Step.ASK,
        Need.TURN: Step.LEAVE,
        Need.SLEEP: Step.LEAVE,
        Need.WORK: Step.LEAVE,
    },
    Mode.FENCED: _RESTING,
    Mode.QUIET: _RESTING,
    Mode.SPENT: _RESTING,
    Mode.WORKING: {
        Need.OVERRUN: Step.GIVE_BACK,
        Need.CLAIMED: Step.RUN,
        Need.UNTOLD: Step.CLAIM,
        Need.UNANSWERED: Step.CLAIM,
        Need.TURN: Step.CLAIM,
        Need.SLEEP: Step.PARK,
        Need.WORK: Step.CLAIM,
    },
}


def mode_of(*, lost: bool, leaving: bool, fenced: bool, quiet: bool, spent: bool) -> Mode:
    """The first mode that holds."""
    if lost:
        return Mode.LOST
    if leaving:
        return Mode.LEAVING
    if fenced:
        return Mode.FENCED
    if quiet:
        return Mode.QUIET
    return Mode.SPENT if spent else Mode.WORKING


def need_of(
    *, claimed: bool, overrun: bool, untold: bool, unanswered: bool, turn_due: bool, nothing_found: bool
) -> Need:
    """What is to be seen to first. `overrun` matters only of what is claimed."""
    if claimed:
        return Need.OVERRUN if overrun else Need.CLAIMED
    if untold:
        return Need.UNTOLD
    if unanswered:
        return Need.UNANSWERED
    if turn_due:
        return Need.TURN
    return Need.SLEEP if nothing_found else Need.WORK


def is_passed_on(queue: str, reply: TurnReply) -> bool:
    """Whether nobody has to be told any more of the token that woke this worker.

    The turn behind it rang where it claimed and left something; when it found nothing at all, there is nothing to ring
    for. Only a claim from another queue leaves this one with entries that nobody was told of.
    """
    if reply.word is not TurnWord.OK:
        return False
    return not reply.claims or reply.claims[0].entry.queue == queue
