"""The books of a worker that runs many tasks at once: places, and outcomes that no answer has named."""

from rota.protocol.entry import parse_entry
from rota.protocol.outcome import DONE, Release, Settlement
from rota.protocol.replies import TurnReply, TurnWord
from rota.worker.concurrent.ledger import InSlot, Ledger

FIRST, SECOND = (parse_entry(b"id-%d default i 1000 1000 0 0 0 0 -" % number) for number in (1, 2))


def answer(word: TurnWord = TurnWord.OK, alone: bytes = b"") -> TurnReply:
    return TurnReply(word, 1, 0, (), (), (), alone)


def finish(ledger: Ledger, settlement: Settlement) -> int:
    packed = ledger.finish(settlement)
    ledger.left_in_slot(packed)
    return len(packed)


def test_a_turn_names_what_runs_and_asks_for_as_many_as_there_are_free_places() -> None:
    ledger = Ledger(3)
    assert [ledger.seat("a"), ledger.seat("b")] == [0, 1]
    turn = ledger.turn(ledger.free)
    assert (turn.limit, turn.picks, turn.held) == (1, 1, ("a", "b"))
    asked = ledger.asked
    ledger.leave(0)
    ledger.answered(answer())
    assert (asked, ledger.asked) == (True, False)
    assert (ledger.seat("c"), ledger.running, ledger.free) == (0, 2, 1)
    assert ledger.turn(0).limit == 0


def test_what_ends_while_a_turn_is_under_way_is_told_by_the_next_one_and_stays_in_the_slot() -> None:
    ledger = Ledger(2)
    size = finish(ledger, Settlement(FIRST, DONE, b"account"))
    assert len(ledger.turn(0).plain) == 1
    later = finish(ledger, Settlement(SECOND, Release()))
    assert ledger.answered(answer()) == InSlot(4, size)
    assert ledger.unconfirmed
    turn = ledger.turn(0)
    assert (turn.plain, turn.settlements.count) == ((), 4)
    assert ledger.answered(answer()) == InSlot(4, later)
    assert not ledger.unconfirmed


def test_without_an_answer_everything_is_told_again_in_the_order_in_which_it_stands_in_the_slot() -> None:
    ledger = Ledger(2)
    first = finish(ledger, Settlement(FIRST, Release()))
    ledger.turn(2)
    second = finish(ledger, Settlement(SECOND, Release()))
    turn = ledger.turn(2)
    assert turn.settlements.count == 8
    assert turn.settlements.data.index(b"id-1") < turn.settlements.data.index(b"id-2")
    assert ledger.answered(answer()) == InSlot(8, first + second)


def test_what_found_no_room_in_the_slot_is_told_and_never_dropped_there() -> None:
    ledger = Ledger(2)
    ledger.finish(Settlement(FIRST, Release()))
    assert ledger.turn(0).settlements.count == 4
    assert ledger.answered(answer()) == InSlot(0, 0)


def test_a_token_stays_until_a_turn_that_named_it_has_passed_it_on() -> None:
    ledger = Ledger(2)
    ledger.tokens.append("one")
    assert ledger.turn(1).tokens == ("one",)
    ledger.tokens.append("two")
    ledger.answered(answer(TurnWord.MORE))
    assert ledger.turn(1).tokens == ("one", "two")
    ledger.tokens.append("three")
    ledger.answered(answer())
    assert ledger.tokens == ["three"]


def test_for_which_entry_hands_are_emptied_is_named_until_an_answer_says_otherwise() -> None:
    ledger = Ledger(2)
    ledger.turn(2)
    ledger.answered(answer(TurnWord.ALONE, b"the entry"))
    assert ledger.turn(2).alone == b"the entry"
    ledger.answered(answer())
    assert ledger.turn(2).alone == b""


def test_what_was_not_started_and_is_still_held_is_asked_for_again() -> None:
    ledger = Ledger(1)
    place = ledger.seat("a")
    ledger.forget(place)
    assert (ledger.asked, ledger.running, ledger.free) == (True, 0, 1)
    assert ledger.turn(1).held == ()
