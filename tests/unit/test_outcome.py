"""Outcomes in the form that the scripts accept."""

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.entry import parse_entry
from rota.protocol.outcome import (
    ARGS_PER_SETTLEMENT,
    DONE,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    Release,
    RetryOutcome,
    Settlement,
    plain_lines,
    ran_by,
    run_record_of,
    settlement_args,
)
from rota.protocol.wire import Arg, command
from support.protocol import pack_settlements

_RUN_RECORD = run_record_of(1, 2, ran_by(3, "work"))
_ENTRY = parse_entry(b"id-1 mail i 1 2 0 0 0 0 -")

_OUTCOMES: list[tuple[Outcome, tuple[Arg, Arg, Arg]]] = [
    (DONE, ("done", _RUN_RECORD, "")),
    (Done(), ("done", _RUN_RECORD, "")),
    (Done(b'{"a":1}', 60_000), ("done", _RUN_RECORD, b'60000 {"a":1}')),
    (RetryOutcome(1_500_000), ("retry", 1_500_000, b"")),
    (RetryOutcome(1, b'{"reason":"failed"}'), ("retry", 1, b'{"reason":"failed"}')),
    (DeadOutcome(b'{"reason":"x"}'), ("dead", b'{"reason":"x"}', "")),
    (Release(), ("release", "", "")),
    (CancelledOutcome(), ("cancelled", _RUN_RECORD, "")),
    (Expired(), ("expired", _RUN_RECORD, "")),
]


@pytest.mark.parametrize(("outcome", "expected"), _OUTCOMES)
def test_a_settlement_is_encoded_as_its_entry_outcome_and_two_arguments(
    outcome: Outcome, expected: tuple[Arg, Arg, Arg]
) -> None:
    assert settlement_args(Settlement(_ENTRY, outcome, _RUN_RECORD)) == (_ENTRY.text, *expected)


def test_a_plain_done_outcome_is_encoded_as_two_lines() -> None:
    assert plain_lines(Settlement(_ENTRY, DONE, _RUN_RECORD)) == b"\n" + _ENTRY.text + b"\n" + _RUN_RECORD


@pytest.mark.parametrize(
    ("flag", "outcome", "run"),
    [("u", DONE, _RUN_RECORD), ("-", DONE, b""), *(("-", outcome, _RUN_RECORD) for outcome, _ in _OUTCOMES[2:])],
)
def test_an_outcome_other_than_plain_done_has_no_short_encoding(flag: str, outcome: Outcome, run: bytes) -> None:
    entry = parse_entry(f"id-1 mail i 1 2 0 0 0 0 {flag}".encode())
    assert plain_lines(Settlement(entry, outcome, run)) == b""


@given(st.lists(st.sampled_from([outcome for outcome, _ in _OUTCOMES]), max_size=30))
def test_packed_settlements_keep_their_order_with_four_arguments_each(outcomes: list[Outcome]) -> None:
    packed = pack_settlements(Settlement(_ENTRY, outcome, _RUN_RECORD) for outcome in outcomes)
    assert packed.count == ARGS_PER_SETTLEMENT * len(outcomes)
    reader = hiredis.Reader()
    reader.feed(command([packed]))
    args = [arg for outcome in outcomes for arg in settlement_args(Settlement(_ENTRY, outcome, _RUN_RECORD))]
    assert reader.gets() == [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
