"""The ledger of a worker that runs many tasks at once: its tasks, and outcomes that no reply has confirmed."""

from rota.durations import NANOSECONDS
from rota.protocol.entry import parse_entry
from rota.protocol.outcome import DONE, Release, Settlement
from rota.protocol.turns import TurnReply, TurnStatus
from rota.worker.claims import Ledger

FIRST, SECOND = (parse_entry(b"id-%d default i 1000 1000 0 0 0 0 -" % number) for number in (1, 2))


def answer(word: TurnStatus = TurnStatus.OK, alone: bytes = b"") -> TurnReply:
    return TurnReply(word, 1, 0, (), (), (), alone)


def test_a_turn_names_what_runs_and_asks_for_as_many_as_there_are_free_places() -> None:
    ledger = Ledger(3)
    assert [ledger.add("a"), ledger.add("b")] == [0, 1]
    turn = ledger.turn(ledger.free, 0)
    assert (turn.limit, turn.picks, turn.held) == (1, 1, ("a", "b"))
    asked = ledger.may_hold_more
    ledger.remove(0)
    ledger.take_reply(answer())
    assert (asked, ledger.may_hold_more) == (True, False)
    assert (ledger.add("c"), ledger.running, ledger.free) == (0, 2, 1)
    assert ledger.turn(0, 0).limit == 0


def test_what_ends_while_a_turn_is_under_way_is_told_by_the_next_one() -> None:
    ledger = Ledger(2)
    ledger.finish(Settlement(FIRST, DONE, b"account"))
    assert len(ledger.turn(0, 0).plain) == 1
    ledger.finish(Settlement(SECOND, Release()))
    ledger.take_reply(answer())
    assert ledger.has_unconfirmed
    turn = ledger.turn(0, 0)
    assert (turn.plain, turn.settlements.count) == ((), 4)
    ledger.take_reply(answer())
    assert not ledger.has_unconfirmed


def test_without_an_answer_everything_is_told_again_in_the_order_in_which_it_stands_in_the_slot() -> None:
    ledger = Ledger(2)
    ledger.finish(Settlement(FIRST, Release()))
    ledger.turn(2, 0)
    ledger.finish(Settlement(SECOND, Release()))
    turn = ledger.turn(2, 0)
    assert turn.settlements.count == 8
    assert turn.settlements.data.index(b"id-1") < turn.settlements.data.index(b"id-2")
    ledger.take_reply(answer())
    assert not ledger.has_unconfirmed


def test_a_token_stays_until_a_turn_that_named_it_has_passed_it_on() -> None:
    ledger = Ledger(2)
    ledger.tokens.append("one")
    assert ledger.turn(1, 0).tokens == ("one",)
    ledger.tokens.append("two")
    ledger.take_reply(answer(TurnStatus.MORE))
    assert ledger.turn(1, 0).tokens == ("one", "two")
    ledger.tokens.append("three")
    ledger.take_reply(answer())
    assert ledger.tokens == ["three"]


def test_for_which_entry_hands_are_emptied_is_named_until_an_answer_says_otherwise() -> None:
    ledger = Ledger(2)
    ledger.turn(2, 0)
    ledger.take_reply(answer(TurnStatus.QUARANTINE, b"the entry"))
    assert ledger.turn(2, 0).quarantined == b"the entry"
    ledger.take_reply(answer())
    assert ledger.turn(2, 0).quarantined == b""


def test_what_was_not_started_and_is_still_held_is_asked_for_again() -> None:
    ledger = Ledger(1)
    task_index = ledger.add("a")
    ledger.forget(task_index)
    assert (ledger.may_hold_more, ledger.running, ledger.free) == (True, 0, 1)
    assert ledger.turn(1, 0).held == ()
    assert ledger.may_hold_more


def test_what_was_forgotten_while_a_turn_was_under_way_is_asked_for_by_the_next_one() -> None:
    ledger = Ledger(2)
    task_index = ledger.add("a")
    assert ledger.turn(1, 0).held == ("a",)
    ledger.forget(task_index)
    ledger.take_reply(answer())  # that turn had named it, so the answer does not bring it
    assert ledger.may_hold_more
    assert ledger.turn(0, 0).held == ()
    ledger.take_reply(answer())
    assert not ledger.may_hold_more


def test_what_is_held_is_named_when_more_may_be_held_and_now_and_then_and_else_not() -> None:
    ledger = Ledger(3)
    ledger.add("a")
    assert ledger.turn(1, 0).held == ("a",)  # the first turn of all
    ledger.take_reply(answer())
    assert ledger.turn(1, 1).held is None
    assert ledger.turn(0, 2).held == ("a",)  # work was asked for, and no answer has come
    ledger.take_reply(answer(TurnStatus.QUARANTINE, b"the entry"))
    assert ledger.turn(1, 3).held == ("a",)
    ledger.take_reply(answer())
    assert ledger.turn(0, 4).held is None
    assert ledger.turn(0, 3 + NANOSECONDS).held == ("a",)
    assert ledger.turn(0, 4 + NANOSECONDS).held is None
