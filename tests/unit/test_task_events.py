"""The reading of the stream of task events."""

from datetime import UTC, datetime, timedelta

import pytest

from rota.protocol.task_states import EventsPage, TaskEvent, is_place, order_of, parse_events

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
PLACE = f"{round(AT.timestamp() * 1000)}-7"
PLAIN = {"event": "enqueued", "task_id": "a", "queue": "q", "task": "work", "attempt": "0", "owner": ""}


def entry(**fields: str) -> list[object]:
    pairs = [word.encode() for pair in (PLAIN | fields).items() for word in pair]
    return [PLACE.encode(), pairs]


def page(*entries: object) -> EventsPage:
    return parse_events([1, b"1-0", PLACE.encode(), list(entries)])


def test_a_task_event_has_the_fields_of_its_stream_entry() -> None:
    [plain] = page(entry()).events
    assert plain == TaskEvent(PLACE, "enqueued", "a", "q", "work", AT)
    due = str(round((AT + timedelta(seconds=1)).timestamp() * 1_000_000))
    [full] = page(entry(owner="n:1:2", attempt="3", due_us=due, lag_us="1500", run_us="2", reason="raised")).events
    assert (full.owner, full.attempt, full.due_at) == ("n:1:2", 3, AT + timedelta(seconds=1))
    assert (full.lag_seconds, full.runtime_seconds, full.reason) == (0.0015, 0.000002, "raised")


def test_a_page_of_task_events_has_its_range_and_its_end() -> None:
    found = page(entry())
    assert (found.wanted, found.oldest, found.latest, found.end) == (True, "1-0", PLACE, PLACE)
    assert parse_events([0, b"", b"", []]) == EventsPage(False, "", "", "", ())


@pytest.mark.parametrize(
    "stray",
    [[PLACE.encode(), [b"a", b"b"]], entry(attempt="x"), entry(due_us="soon"), entry(lag_us="1.5")],
    ids=["other fields", "attempt", "due", "lag"],
)
def test_stream_entries_that_are_not_task_events_are_skipped(stray: object) -> None:
    assert page(entry(), stray).events == page(entry()).events
    assert page(stray).end == PLACE


def test_bytes_of_task_events_that_are_not_utf8_are_escaped() -> None:
    raw = [PLACE.encode(), [*[word.encode() for pair in PLAIN.items() for word in pair][:-1], b"\xff"]]
    assert page(raw).events[0].owner == r"\xff"


def test_positions_in_the_event_stream_are_compared_as_numbers() -> None:
    assert order_of("9-10") > order_of("9-9") > order_of("9") == order_of("9-0") > order_of("0")


@pytest.mark.parametrize(("text", "holds"), [("0", True), ("1-2", True), ("", False), ("1-", False), ("x", False)])
def test_only_valid_stream_ids_are_accepted_as_positions(text: str, holds: bool) -> None:
    assert is_place(text) is holds
