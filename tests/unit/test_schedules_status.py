"""The status of a schedule, whatever the schedule's record contains."""

from datetime import UTC, datetime

from rota.durations import MICROSECONDS
from rota.protocol.schedule_store import SchedulePage, ScheduleRecord, StoredSchedule
from rota.schedules.schedule import CronRule, EveryRule, Rule, Schedule, encode_schedule
from rota.schedules.schedule_status import FoundSchedule, ScheduleStatus, read_schedule, rows_of

NOW_US = 1_795_361_618_500_000  # 2026-11-22 15:33:38.5 UTC
SECOND = NOW_US - NOW_US % MICROSECONDS
NIGHTLY = CronRule("0 3 * * *", "Europe/Zurich")


def stored(
    name: str, rule: Rule, *, paused_us: int = 0, ahead_us: tuple[int, ...] = (), end_us: int | None = None
) -> StoredSchedule:
    text = encode_schedule(Schedule("n", "report", rule, "q", args=(7,), jitter_us=MICROSECONDS, end_us=end_us))
    return StoredSchedule(name, ScheduleRecord(SECOND, 0, None, paused_us, 1, ahead_us, text).to_bytes())


def found(one: StoredSchedule) -> FoundSchedule:
    read = read_schedule(one, NOW_US)
    assert isinstance(read, FoundSchedule)
    return read


def test_the_current_time_separates_the_last_and_the_next_occurrence() -> None:
    status = found(stored("tick", EveryRule(MICROSECONDS), ahead_us=(SECOND, SECOND + MICROSECONDS))).status()

    assert status.last_at == datetime(2026, 11, 22, 15, 33, 38, tzinfo=UTC)
    assert status.next_at == datetime(2026, 11, 22, 15, 33, 39, tzinfo=UTC)
    assert status.due_at is not None
    assert 0 <= (status.due_at - status.next_at).total_seconds() < 1
    assert (status.every, status.jitter, status.args, status.when) == (1, 1, (7,), "every 1 s")


def test_each_schedule_is_listed_with_its_state() -> None:
    over = stored("over", EveryRule(MICROSECONDS), end_us=SECOND)
    paused = stored("paused", NIGHTLY, paused_us=NOW_US - MICROSECONDS)
    page = SchedulePage(NOW_US, 4, (stored("nightly", NIGHTLY), paused, over, StoredSchedule("odd", b"whatever")))

    waiting, *others = rows_of(page)

    assert (waiting["when"], waiting["next_at"]) == ("0 3 * * * Europe/Zurich", "2026-11-23T02:00:00+00:00")
    assert waiting["next_in_seconds"] >= 37_581
    assert [(row["name"], row["state"], row["next_in_seconds"]) for row in (waiting, *others)][1:] == [
        ("paused", "paused", None),
        ("over", "over", None),
        ("odd", "broken", None),
    ]


def test_a_paused_schedule_shows_its_pause_and_its_upcoming_times() -> None:
    paused = found(stored("nightly", NIGHTLY, paused_us=SECOND))

    assert paused.status().paused_at == datetime(2026, 11, 22, 15, 33, 38, tzinfo=UTC)
    assert paused.status().next_at is None
    assert [when.hour for when in paused.upcoming(2)] == [2, 2]


def test_an_unreadable_schedule_is_listed_with_an_error() -> None:
    out_of_bounds = stored("far", NIGHTLY, paused_us=10**30)

    for broken in (StoredSchedule("odd", b"1 2 3\n{}"), out_of_bounds):
        status = read_schedule(broken, NOW_US)
        assert isinstance(status, ScheduleStatus)
        assert "not a schedule" in status.error
