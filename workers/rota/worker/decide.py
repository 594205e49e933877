"""What a worker does next: a table of what it may do and what is to be seen to first. Pure."""

from collections.abc import Callable
from enum import Enum
from typing import Final

from rota.protocol.turns import TurnReply, TurnWord


class Step(Enum):
    """What comes next."""

    RUN = "run"  # what is claimed
    CLAIM = "claim"  # by a turn, which settles too
    SETTLE = "settle"  # by a turn that claims nothing
    PARK = "park"  # at the doorbells
    HOLD = "hold"  # still, while nothing may be claimed
    GIVE_BACK = "give back"  # what was claimed and not started
    ASK = "ask"  # once, what an unanswered claim has brought
    LEAVE = "leave"


class _Key(Enum):
    """A key of the table. Enum's own hash is a function of Python's, for which a worker that was woken would wait."""

    __hash__ = object.__hash__


class Mode(_Key):
    """What this worker may do now; of several the first holds."""

    LOST = "lost"  # its owner is no longer registered
    LEAVING = "leaving"  # a stop was asked for
    FENCED = "fenced"  # its lease may have run out
    QUIET = "quiet"  # the master asked it to claim nothing
    SPENT = "spent"  # it has made all its attempts
    WORKING = "working"  # none of these


class Need(_Key):
    """What is to be seen to first."""

    OVERRUN = "overrun"  # tasks were claimed so long ago that they may have been given back
    CLAIMED = "claimed"  # tasks are claimed and not started
    UNCONFIRMED = "unconfirmed"  # there are outcomes or tokens that no answer has named yet
    UNANSWERED = "unanswered"  # work was asked for, and no answer has come
    TURN = "turn"  # the last turn was long ago
    SLEEP = "sleep"  # the last claim found nothing, and nobody rang since
    WORK = "work"  # none of these


def _row(*steps: Step) -> dict[Need, Step]:
    return dict(zip(Need, steps, strict=True))


# For each need, in their order: OVERRUN, CLAIMED, UNCONFIRMED, UNANSWERED, TURN, SLEEP, WORK.
# Who claims nothing gives back what it has not started: others may start it, and it is not to be charged with a lease
# that may be lost.
_RESTING = _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.SETTLE, Step.SETTLE, Step.HOLD, Step.HOLD)
STEPS: Final = {
    Mode.LOST: dict.fromkeys(Need, Step.LEAVE),
    Mode.LEAVING: _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.ASK, Step.LEAVE, Step.LEAVE, Step.LEAVE),
    Mode.FENCED: _RESTING,
    Mode.QUIET: _RESTING,
    Mode.SPENT: _RESTING,
    Mode.WORKING: _row(Step.GIVE_BACK, Step.RUN, Step.CLAIM, Step.CLAIM, Step.CLAIM, Step.PARK, Step.CLAIM),
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


def need_of(*, unconfirmed: bool, unanswered: bool, turn_due: bool, nothing_found: bool) -> Need:
    """What is to be seen to first by one that has claimed nothing it has not started."""
    if unconfirmed:
        return Need.UNCONFIRMED
    if unanswered:
        return Need.UNANSWERED
    if turn_due:
        return Need.TURN
    return Need.SLEEP if nothing_found else Need.WORK


def is_passed_on(name: str, reply: TurnReply, served_as: Callable[[str], str]) -> bool:
    """Whether the doorbell token that woke this worker need not be passed on to another one.

    A turn that claims from a queue and leaves entries there rings for it, and for its pattern when any queue of that
    has something; one that finds nothing need not ring at all. Only when it claims from a queue that is served as
    another `name` alone may there be entries for which it rang nobody.
    """
    if reply.word is not TurnWord.OK and reply.word is not TurnWord.PLENTY:
        return False
    return not reply.claims or name in [served_as(claim.entry.queue) for claim in reply.claims]
