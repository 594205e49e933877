"""The worker's next step, over every situation there is."""

import dataclasses
import itertools

import pytest

from rota.protocol.entry import parse_entry
from rota.protocol.replies import Claim, TurnReply, TurnWord
from rota.worker.decide import Situation, Step, decide, is_passed_on

_NAMES = [field.name for field in dataclasses.fields(Situation)]
EVERY_SITUATION = [
    Situation(**dict(zip(_NAMES, values, strict=True)))
    for values in itertools.product((False, True), repeat=len(_NAMES))
]


@pytest.mark.parametrize(
    ("situation", "step"),
    [
        (Situation(), Step.CLAIM),
        (Situation(idle=True), Step.PARK),
        (Situation(idle=True, turn_due=True), Step.CLAIM),
        (Situation(idle=True, owing=True), Step.CLAIM),
        (Situation(waiting=True), Step.RUN),
        (Situation(waiting=True, owing=True), Step.RUN),
        (Situation(waiting=True, overrun=True), Step.GIVE_BACK),
        (Situation(waiting=True, overrun=True, fenced=True), Step.GIVE_BACK),
        (Situation(fenced=True), Step.HOLD),
        (Situation(fenced=True, waiting=True), Step.GIVE_BACK),
        (Situation(quiet=True), Step.HOLD),
        (Situation(quiet=True, idle=True), Step.HOLD),
        (Situation(quiet=True, waiting=True), Step.GIVE_BACK),
        (Situation(quiet=True, owing=True), Step.SETTLE),
        (Situation(quiet=True, turn_due=True), Step.SETTLE),
        (Situation(quiet=True, leaving=True), Step.LEAVE),
        (Situation(spent=True), Step.HOLD),
        (Situation(spent=True, waiting=True), Step.GIVE_BACK),
        (Situation(fenced=True, owing=True), Step.SETTLE),
        (Situation(fenced=True, turn_due=True), Step.SETTLE),
        (Situation(leaving=True, waiting=True, owing=True), Step.GIVE_BACK),
        (Situation(leaving=True, owing=True), Step.SETTLE),
        (Situation(leaving=True), Step.LEAVE),
        (Situation(lost=True, waiting=True, owing=True), Step.LEAVE),
    ],
)
def test_each_situation_has_its_step(situation: Situation, step: Step) -> None:
    assert decide(situation) is step


def test_nothing_starts_and_nothing_is_claimed_when_it_must_not() -> None:
    for situation in EVERY_SITUATION:
        if situation.lost or situation.leaving or situation.fenced or situation.quiet or situation.spent:
            assert decide(situation) not in (Step.RUN, Step.CLAIM, Step.PARK), situation


def test_nobody_leaves_with_something_in_hand_unless_it_is_lost() -> None:
    for situation in EVERY_SITUATION:
        if decide(situation) is Step.LEAVE and not situation.lost:
            assert not situation.waiting, situation
            assert not situation.owing, situation


def test_what_is_owed_is_never_slept_on() -> None:
    for situation in EVERY_SITUATION:
        if situation.owing:
            assert decide(situation) not in (Step.PARK, Step.HOLD), situation


@pytest.mark.parametrize(
    ("word", "claimed_from", "passed_on"),
    [
        (TurnWord.OK, "rung", True),
        (TurnWord.OK, "", True),
        (TurnWord.OK, "other", False),
        (TurnWord.AGAIN, "rung", False),
        (TurnWord.MORE, "", False),
    ],
)
def test_a_token_is_told_on_unless_its_own_queue_was_claimed_from_or_nothing_is_there(
    word: TurnWord, claimed_from: str, passed_on: bool
) -> None:
    claims = (Claim(parse_entry(f"id {claimed_from} i 1 1 0 0 0 0 -".encode()), b""),) if claimed_from else ()
    assert is_passed_on("rung", TurnReply(word, 0, 0, (), claims, ())) is passed_on
