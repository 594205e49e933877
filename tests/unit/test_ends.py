"""The records of runs and of ended tasks, which must be read exactly as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.outcome import RunRecord, parse_ended, ran_by, run_record_of

ENTRY = b"id-1 mail i 1 2 0 1 0 0 C"
_names = st.from_regex(r"[A-Za-z0-9_.:-]{1,128}", fullmatch=True).filter(lambda name: name != "-")
_times = st.integers(1, 9_000_000_000_000_000)


@given(_times, st.integers(0, 10**15), st.integers(1, 2**22), _names, st.text(max_size=50))
def test_a_run_record_is_parsed_as_it_was_written(start_us: int, run_us: int, pid: int, name: str, why: str) -> None:
    record = b"done 7 node:1:2 " + ENTRY + run_record_of(start_us, run_us, ran_by(pid, name), why)
    ended = parse_ended(record)
    assert ended.run == RunRecord(start_us, run_us, pid, name, " ".join(why.split()).encode(errors="replace").decode())
    assert (ended.how, ended.at_us, ended.owner, ended.entry.text, ended.earlier) == ("done", 7, "node:1:2", ENTRY, ())


def test_a_run_record_lists_earlier_attempts_and_a_waiting_task_has_no_owner() -> None:
    ended = parse_ended(b"cancelled 7 - " + ENTRY + b' 0 0 0 -\n{"reason":"failed"}\n{"reason":"crashed"}')
    assert (ended.owner, ended.run) == ("", RunRecord())
    assert ended.earlier == (b'{"reason":"failed"}', b'{"reason":"crashed"}')


@pytest.mark.parametrize(
    "record",
    [b"", b"done 7 -", b"dead 7 - " + ENTRY + b" 0 0 0 -", b"done -7 - " + ENTRY + b" 0 0 0 -",
     b"done 7 - " + ENTRY + b" 0 0 0", b"done 7 - " + ENTRY + b" 9999999999999999 0 0 -"],
)  # fmt: skip
def test_an_invalid_record_is_refused(record: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        parse_ended(record)
