"""A worker's record of the tasks and outcomes that it holds. They stay recorded until a reply confirms them."""

from rota.protocol.entry import parse_entry
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, DONE, Release, Settlement
from rota.protocol.tiers import NO_LIMITS
from rota.protocol.turns import Claim, Turn, TurnReply, TurnStatus
from rota.worker.claims import CLAIM_NS, SAFE_CLAIM_AGE_NS, SAFE_CLAIM_AGE_US, InFlight
from rota.worker.redis_times import Anchor
from support.protocol import RUN_RECORD

RECEIVED_NS = 1_000
ANCHOR = Anchor(500, 0, RECEIVED_NS)
CLAIM_BY_US = 500 + SAFE_CLAIM_AGE_US  # a claim made before this time cannot have been taken back in the meantime
LATE_NS = RECEIVED_NS + CLAIM_NS + 1


def _claim(task_id: str) -> Claim:
    return Claim(parse_entry(f"{task_id} q i 1 1 0 0 0 0 -".encode()), b"[]")


def _reply(word: TurnStatus, *claims: Claim) -> TurnReply:
    return TurnReply(word, 0, 0, (), claims, ())


def _with_outcomes() -> InFlight:
    """Return a state with two outcomes. The first one is sent in the compact form, as a line, and the second one as
    four arguments.
    """
    in_flight = InFlight(tokens=["q"])
    in_flight.finish(Settlement(_claim("a").entry, DONE, RUN_RECORD))
    in_flight.finish(Settlement(_claim("b").entry, DONE))
    return in_flight


def _in_flight(*ids: str) -> InFlight:
    in_flight = InFlight()
    in_flight.take_reply(_reply(TurnStatus.OK, *map(_claim, ids)), ANCHOR)
    return in_flight


def test_a_turn_that_got_no_reply_is_repeated_unchanged() -> None:
    in_flight = _with_outcomes()
    assert in_flight.turn(1) == in_flight.turn(1)
    assert in_flight.turn(1).settlements.count == ARGS_PER_SETTLEMENT
    assert in_flight.turn(1).plain == (b"\n" + _claim("a").entry.text + b"\n" + RUN_RECORD,)


def test_the_reply_to_a_turn_confirms_outcomes_and_doorbell_tokens() -> None:
    in_flight = _with_outcomes()
    in_flight.turn(1)
    in_flight.take_reply(_reply(TurnStatus.OK, _claim("c")), ANCHOR)
    assert not in_flight.has_unconfirmed
    assert in_flight.turn(0) == Turn(0, held=("c",))
    assert in_flight.next().entry.id == "c"


def test_doorbell_tokens_are_kept_while_the_reply_is_more() -> None:
    in_flight = InFlight(tokens=["q"])
    in_flight.take_reply(_reply(TurnStatus.MORE), ANCHOR)
    assert in_flight.turn(1).tokens == ("q",)
    in_flight.take_reply(_reply(TurnStatus.AGAIN, _claim("a")), ANCHOR)
    assert in_flight.turn(1).tokens == ()


def test_a_worker_releases_unstarted_tasks_last_claimed_first() -> None:
    in_flight = _in_flight("a", "b")
    released = in_flight.give_back()
    assert [settlement.entry.id for settlement in released] == ["b", "a"]
    assert {type(settlement.outcome) for settlement in released} == {Release}
    assert not in_flight.waiting
    assert all(in_flight.was_given_back(settlement.entry.text) for settlement in released)
    in_flight.take_reply(_reply(TurnStatus.OK), ANCHOR)
    assert not any(in_flight.was_given_back(settlement.entry.text) for settlement in released)


def test_each_claimed_task_knows_how_many_claimed_tasks_follow_it() -> None:
    in_flight = _in_flight("a", "b", "c")
    assert [in_flight.next().unstarted for _ in range(3)] == [2, 1, 0]


def test_only_the_first_task_of_a_claim_may_start_after_the_time_limit() -> None:
    in_flight = _in_flight("a", "b", "c")
    assert not in_flight.is_overrun(LATE_NS)
    assert in_flight.next().start_by_ns > LATE_NS
    assert not in_flight.is_overrun(LATE_NS - 1)
    assert in_flight.is_overrun(LATE_NS)
    late = in_flight.next()
    assert late.start_by_ns == LATE_NS - 1
    in_flight.put_back(late)
    assert in_flight.is_overrun(LATE_NS)
    assert [settlement.entry.id for settlement in in_flight.give_back()] == ["c", "b"]
    assert not in_flight.is_overrun(LATE_NS)


def test_a_later_reply_does_not_extend_the_time_limit_of_older_claims() -> None:
    in_flight = _in_flight("a", "b")
    in_flight.next()
    in_flight.take_reply(_reply(TurnStatus.OK), Anchor(0, LATE_NS, LATE_NS))
    assert in_flight.is_overrun(LATE_NS)
    in_flight.take_reply(_reply(TurnStatus.AGAIN, _claim("c")), Anchor(0, LATE_NS, LATE_NS))
    assert in_flight.is_overrun(LATE_NS)


# Turns that are sent while tasks of a claim are still waiting


def _while_two_are_left() -> InFlight:
    """Return a state in which one of three tasks has ended and the next turn is under way."""
    in_flight = _in_flight("a", "b", "c")
    _end(in_flight)
    assert in_flight.pipelined(1, NO_LIMITS) == Turn(1, None, plain=(_lines("a"),), claim_by_us=CLAIM_BY_US)
    return in_flight


def _end(in_flight: InFlight) -> None:
    in_flight.finish(Settlement(in_flight.next().entry, DONE, RUN_RECORD))


def _lines(task_id: str) -> bytes:
    return b"\n" + _claim(task_id).entry.text + b"\n" + RUN_RECORD


def test_an_outcome_during_a_turn_is_sent_by_the_next_turn() -> None:
    in_flight = _while_two_are_left()
    _end(in_flight)
    _end(in_flight)
    in_flight.take_reply(_reply(TurnStatus.OK, _claim("d")), ANCHOR)
    assert in_flight.turn(1) == Turn(1, ("d",), plain=(_lines("b"), _lines("c")))
    in_flight.take_reply(_reply(TurnStatus.OK), ANCHOR)
    assert not in_flight.has_unconfirmed


def test_after_a_lost_reply_the_next_turn_repeats_outcomes_and_held_tasks() -> None:
    in_flight = _while_two_are_left()
    _end(in_flight)
    assert in_flight.may_hold_more
    assert in_flight.turn(1) == Turn(1, ("c",), plain=(_lines("a"), _lines("b")))


def test_a_turn_in_progress_counts_as_one_more_waiting_task() -> None:
    in_flight = _while_two_are_left()
    assert [in_flight.next().unstarted for _ in range(2)] == [1, 1]


def test_claims_that_may_have_been_returned_meanwhile_are_queried_again() -> None:
    last_ns = RECEIVED_NS + SAFE_CLAIM_AGE_NS
    for ended_ns, is_late in ((last_ns, False), (last_ns + 1, True)):
        in_flight = _while_two_are_left()
        _end(in_flight)
        _end(in_flight)
        read = Anchor(0, 0, 2 * last_ns)  # the reply was read long after its arrival, which must not matter
        in_flight.take_reply(_reply(TurnStatus.OK, _claim("d"), _claim("e")), read, ended_ns)
        assert (in_flight.may_hold_more, not in_flight.waiting) == (is_late, is_late)
    assert in_flight.turn(1) == Turn(1, (), plain=(_lines("b"), _lines("c")))
    in_flight.take_reply(_reply(TurnStatus.AGAIN, _claim("e")), read)
    assert not in_flight.may_hold_more
    assert in_flight.next().start_by_ns > 2 * last_ns
