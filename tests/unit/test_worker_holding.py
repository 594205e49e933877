"""What a worker has in hand stays there until an answer has named it."""

from rota.protocol.entry import parse_entry
from rota.protocol.outcome import Done, Release, Settlement
from rota.protocol.replies import Claim, TurnReply, TurnWord
from rota.worker.holding import Holding
from rota.worker.times import Anchor

ANCHOR = Anchor(0, 0, 0)


def _claim(task_id: str) -> Claim:
    return Claim(parse_entry(f"{task_id} q i 1 1 0 0 0 0 -".encode()), b"[]")


def _reply(word: TurnWord, *claims: Claim) -> TurnReply:
    return TurnReply(word, 0, 0, (), claims, ())


def test_a_turn_without_an_answer_is_made_again_the_same() -> None:
    holding = Holding(finished=[Settlement(_claim("a").entry, Done())], tokens=["q"])
    assert holding.turn(1) == holding.turn(1)
    assert holding.turn(1).settlements.count == 4


def test_an_answer_takes_outcomes_and_tokens_off_the_books() -> None:
    holding = Holding(finished=[Settlement(_claim("a").entry, Done())], tokens=["q"])
    holding.answered(_reply(TurnWord.OK, _claim("b")), ANCHOR)
    assert not holding.owing
    assert [claimed.claim.entry.id for claimed in holding.waiting] == ["b"]
    assert holding.turn(0).held == ("b",)


def test_tokens_stay_until_an_answer_other_than_more() -> None:
    holding = Holding(tokens=["q"])
    holding.answered(_reply(TurnWord.MORE), ANCHOR)
    assert holding.turn(1).tokens == ("q",)
    holding.answered(_reply(TurnWord.AGAIN, _claim("a")), ANCHOR)
    assert holding.turn(1).tokens == ()


def test_what_is_given_back_goes_last_claimed_first() -> None:
    holding = Holding()
    holding.answered(_reply(TurnWord.OK, _claim("a"), _claim("b")), ANCHOR)
    released = holding.give_back()
    assert [settlement.entry.id for settlement in released] == ["b", "a"]
    assert {type(settlement.outcome) for settlement in holding.finished} == {Release}
    assert not holding.waiting
