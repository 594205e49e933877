"""The parsing of an entry, which is one line of a lane."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.entry import FIELDS, CrashKind, Entry, Kind, parse_entry

_NAMES = st.text("abyzABYZ0189_.:-", min_size=1, max_size=128)
_NUMBERS = st.integers(min_value=0, max_value=2**53)
_COUNTERS = st.integers(min_value=0, max_value=1_000)


def _line(entry: Entry) -> bytes:
    fields = (
        entry.id,
        entry.queue,
        entry.kind.value,
        entry.due_us,
        entry.ready_us,
        entry.failures,
        entry.crashes,
        entry.losses,
        entry.releases,
        entry.flag,
    )
    return " ".join(map(str, fields)).encode()


@given(
    st.builds(
        Entry,
        st.just(b""),
        _NAMES,
        _NAMES,
        st.sampled_from(Kind),
        _NUMBERS,
        _NUMBERS,
        _COUNTERS,
        _COUNTERS,
        _COUNTERS,
        _COUNTERS,
        st.sampled_from(["-", "u", "uO", "S"]),
    )
)
def test_an_entry_is_parsed_and_written_back_unchanged(entry: Entry) -> None:
    line = _line(entry)
    assert len(line.split(b" ")) == FIELDS
    parsed = parse_entry(line)
    assert parsed.text == line
    assert _line(parsed) == line


def test_failures_crashes_and_losses_count_as_attempts_but_not_releases() -> None:
    entry = parse_entry(b"id-1 mail r 1700000000000000 1700000000000500 2 1 1 7 -")
    assert entry.attempt == 5
    assert entry.kind is Kind.RETRY


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("-", None),
        ("u", None),
        ("O", CrashKind.OOM),
        ("uT", CrashKind.TIMEOUT),
        ("X", None),
        ("uX", None),
        ("7", None),
        ("u12C", CrashKind.CRASH),
    ],
)
def test_the_flag_of_an_entry_contains_the_last_crash_or_loss(flag: str, kind: CrashKind | None) -> None:
    assert parse_entry(f"id-1 mail i 1 1 0 1 0 0 {flag}".encode()).last_crash is kind


@pytest.mark.parametrize("kind", list(Kind))
def test_the_label_of_each_kind_is_one_word_that_contains_its_letter(kind: Kind) -> None:
    assert kind.label.isalpha()
    assert kind.value in kind.label


@pytest.mark.parametrize(
    "text", [b"", b"id queue i 1 1 0 0 0 0", b"id queue i 1 1 0 0 0 0 - -", b'["id","queue","f",[]]']
)
def test_a_malformed_entry_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not an entry"):
        parse_entry(text)
