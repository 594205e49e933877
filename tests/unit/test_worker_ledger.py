"""The ledger of a worker that runs many tasks at once. The ledger contains the worker's tasks, and the outcomes that no
reply has confirmed yet.
"""

from rota.durations import NANOSECONDS
from rota.protocol.entry import parse_entry
from rota.protocol.outcome import DONE, Release, Settlement
from rota.protocol.turns import TurnReply, TurnStatus
from rota.worker.claims import Ledger

FIRST, SECOND = (parse_entry(b"id-%d default i 1000 1000 0 0 0 0 -" % number) for number in (1, 2))


def reply(word: TurnStatus = TurnStatus.OK, quarantined: bytes = b"") -> TurnReply:
    return TurnReply(word, 1, 0, (), (), (), quarantined)


def test_a_concurrent_worker_claims_only_as_many_tasks_as_it_has_room_for() -> None:
    ledger = Ledger(3)
    assert [ledger.add("a"), ledger.add("b")] == [0, 1]
    turn = ledger.turn(ledger.free, 0)
    assert (turn.limit, turn.picks, turn.held) == (1, 1, ("a", "b"))
    before = ledger.may_hold_more
    ledger.remove(0)
    ledger.take_reply(reply())
    assert (before, ledger.may_hold_more) == (True, False)
    assert (ledger.add("c"), ledger.running, ledger.free) == (0, 2, 1)
    assert ledger.turn(0, 0).limit == 0


def test_an_outcome_during_a_turn_is_sent_by_the_next_turn() -> None:
    ledger = Ledger(2)
    ledger.finish(Settlement(FIRST, DONE, b"account"))
    assert len(ledger.turn(0, 0).plain) == 1
    ledger.finish(Settlement(SECOND, Release()))
    ledger.take_reply(reply())
    assert ledger.has_unconfirmed
    turn = ledger.turn(0, 0)
    assert (turn.plain, turn.settlements.count) == ((), 4)
    ledger.take_reply(reply())
    assert not ledger.has_unconfirmed


def test_without_a_reply_outcomes_are_sent_again_in_their_order() -> None:
    ledger = Ledger(2)
    ledger.finish(Settlement(FIRST, Release()))
    ledger.turn(2, 0)
    ledger.finish(Settlement(SECOND, Release()))
    turn = ledger.turn(2, 0)
    assert turn.settlements.count == 8
    assert turn.settlements.data.index(b"id-1") < turn.settlements.data.index(b"id-2")
    ledger.take_reply(reply())
    assert not ledger.has_unconfirmed


def test_a_doorbell_token_is_kept_until_a_turn_with_it_is_confirmed() -> None:
    ledger = Ledger(2)
    ledger.tokens.append("one")
    assert ledger.turn(1, 0).tokens == ("one",)
    ledger.tokens.append("two")
    ledger.take_reply(reply(TurnStatus.MORE))
    assert ledger.turn(1, 0).tokens == ("one", "two")
    ledger.tokens.append("three")
    ledger.take_reply(reply())
    assert ledger.tokens == ["three"]


def test_the_entry_under_quarantine_is_sent_until_a_reply_changes_it() -> None:
    ledger = Ledger(2)
    ledger.turn(2, 0)
    ledger.take_reply(reply(TurnStatus.QUARANTINE, b"the entry"))
    assert ledger.turn(2, 0).quarantined == b"the entry"
    ledger.take_reply(reply())
    assert ledger.turn(2, 0).quarantined == b""


def test_a_task_that_a_worker_holds_but_did_not_start_is_queried_again() -> None:
    ledger = Ledger(1)
    task_index = ledger.add("a")
    ledger.forget(task_index)
    assert (ledger.may_hold_more, ledger.running, ledger.free) == (True, 0, 1)
    assert ledger.turn(1, 0).held == ()
    assert ledger.may_hold_more


def test_a_held_task_forgotten_during_a_turn_is_queried_by_the_next_turn() -> None:
    ledger = Ledger(2)
    task_index = ledger.add("a")
    assert ledger.turn(1, 0).held == ("a",)
    ledger.forget(task_index)
    ledger.take_reply(reply())  # the turn listed the task, so its reply cannot contain the task again
    assert ledger.may_hold_more
    assert ledger.turn(0, 0).held == ()
    ledger.take_reply(reply())
    assert not ledger.may_hold_more


def test_a_turn_lists_held_tasks_only_when_needed_or_once_a_second() -> None:
    ledger = Ledger(3)
    ledger.add("a")
    assert ledger.turn(1, 0).held == ("a",)  # the task is listed, because this is the first turn
    ledger.take_reply(reply())
    assert ledger.turn(1, 1).held is None
    assert ledger.turn(0, 2).held == ("a",)  # the task is listed, because the reply to a claim is still missing
    ledger.take_reply(reply(TurnStatus.QUARANTINE, b"the entry"))
    assert ledger.turn(1, 3).held == ("a",)
    ledger.take_reply(reply())
    assert ledger.turn(0, 4).held is None
    assert ledger.turn(0, 3 + NANOSECONDS).held == ("a",)
    assert ledger.turn(0, 4 + NANOSECONDS).held is None
