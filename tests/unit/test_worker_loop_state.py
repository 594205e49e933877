"""The next step of a worker, for every mode of the worker and every need of its tasks."""

import pytest

from rota.protocol.entry import parse_entry
from rota.protocol.turns import Claim, TurnReply, TurnStatus
from rota.worker.loop_state import STEPS, Mode, Need, Step, is_passed_on

CLAIMING_NOTHING = [mode for mode in Mode if mode is not Mode.WORKING]
IN_HAND = (Need.OVERRUN, Need.CLAIMED, Need.UNCONFIRMED, Need.UNKNOWN_CLAIM)


@pytest.mark.parametrize("mode", Mode)
def test_the_workers_next_step_is_defined_for_every_mode_and_need(mode: Mode) -> None:
    assert set(STEPS[mode]) == set(Need)


@pytest.mark.parametrize("mode", CLAIMING_NOTHING)
def test_a_worker_that_may_not_claim_neither_starts_nor_claims_tasks(mode: Mode) -> None:
    assert not {Step.RUN, Step.CLAIM, Step.PARK}.intersection(STEPS[mode].values())


@pytest.mark.parametrize("need", IN_HAND)
def test_a_worker_exits_with_tasks_in_hand_only_if_its_lease_is_lost(need: Need) -> None:
    assert [mode for mode in Mode if STEPS[mode][need] is Step.LEAVE] == [Mode.LOST]


@pytest.mark.parametrize("need", [Need.UNCONFIRMED, Need.UNKNOWN_CLAIM])
def test_a_worker_never_sleeps_while_outcomes_are_unconfirmed(need: Need) -> None:
    assert not [mode for mode in Mode if STEPS[mode][need] in (Step.PARK, Step.HOLD)]


@pytest.mark.parametrize("mode", CLAIMING_NOTHING)
def test_claimed_tasks_that_may_not_start_are_given_back(mode: Mode) -> None:
    given_back = {need for need in Need if STEPS[mode][need] is Step.GIVE_BACK}
    assert given_back == (set() if mode is Mode.LOST else {Need.OVERRUN, Need.CLAIMED})


def test_a_worker_runs_its_claimed_tasks_and_sleeps_without_any() -> None:
    working = STEPS[Mode.WORKING]
    assert [need for need in Need if working[need] is Step.RUN] == [Need.CLAIMED]
    assert [need for need in Need if working[need] is Step.PARK] == [Need.SLEEP]
    assert working[Need.OVERRUN] is Step.GIVE_BACK
    assert [need for need in Need if working[need] is Step.CLAIM] == [
        Need.UNCONFIRMED, Need.UNKNOWN_CLAIM, Need.TURN, Need.WORK,
    ]  # fmt: skip


def test_a_worker_that_exits_settles_and_confirms_its_claims_first() -> None:
    leaving = STEPS[Mode.LEAVING]
    assert leaving[Need.UNCONFIRMED] is Step.SETTLE
    assert leaving[Need.UNKNOWN_CLAIM] is Step.QUERY
    assert [need for need in Need if leaving[need] is Step.LEAVE] == [Need.TURN, Need.SLEEP, Need.WORK]


@pytest.mark.parametrize(
    ("word", "claimed_from", "passed_on"),
    [
        (TurnStatus.OK, "rung", True),
        (TurnStatus.OK, "", True),
        (TurnStatus.OK, "other", False),
        (TurnStatus.OK, "rung-1", True),
        (TurnStatus.BACKLOGGED, "rung", True),
        (TurnStatus.BACKLOGGED, "other", False),
        (TurnStatus.AGAIN, "rung", False),
        (TurnStatus.MORE, "", False),
    ],
)
def test_a_turn_on_the_queue_of_a_doorbell_token_passes_the_token_on(
    word: TurnStatus, claimed_from: str, passed_on: bool
) -> None:
    claims = (Claim(parse_entry(f"id {claimed_from} i 1 1 0 0 0 0 -".encode()), b""),) if claimed_from else ()
    reply = TurnReply(word, 0, 0, (), claims, ())
    assert is_passed_on("rung", reply, lambda queue: queue.removesuffix("-1")) is passed_on
