"""Death records, which are JSON of bounded size whatever text the exception has."""

import json
from datetime import UTC, datetime

from rota.protocol.outcome import FailureRecord, error_line, traceback_text

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class _UntraceableError(Exception):
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


def test_a_failure_record_keeps_the_errors_start_and_the_tracebacks_end() -> None:
    written = FailureRecord("retries", "e" * 5000, 11, "first" + "t" * 9000 + "last").to_json(AT)
    record = json.loads(written)
    assert len(written) < 6000
    assert record["traceback"].endswith("last")
    assert "first" not in record["traceback"]
    assert (record["reason"], record["attempt"], record["at"]) == ("retries", 11, "2026-01-02T03:04:05.000+00:00")


def test_unknown_fields_are_omitted_from_a_failure_record() -> None:
    assert set(json.loads(FailureRecord("lost", "gone").to_json(AT))) == {"reason", "error", "at"}


def test_an_exception_whose_str_method_raises_is_still_named() -> None:
    assert error_line(_UnspeakableError()) == "_UnspeakableError: (its __str__ raised an exception)"
    assert "_UnspeakableError" in traceback_text(_UnspeakableError())


def test_an_exception_whose_traceback_cannot_be_formatted_is_still_named() -> None:
    assert traceback_text(_UntraceableError("why")) == "_UntraceableError: why"


def test_invalid_unicode_in_a_failure_record_is_replaced() -> None:
    assert json.loads(FailureRecord("retries", "bad \udc80 text").to_json(AT))["error"] == "bad ? text"
