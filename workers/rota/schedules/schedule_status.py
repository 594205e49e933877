"""Schedules that were read from Redis, and their status as people and programs see it."""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.schedule_store import SchedulePage, ScheduleRecord, StoredSchedule, read_schedule_record
from rota.protocol.wire import shown
from rota.schedules.occurrences import next_occurrence, occurrences
from rota.schedules.schedule import CronRule, EveryRule, Missed, Overlap, Schedule, Source, decode_schedule

Times = list[datetime]


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule and its state. Durations are in seconds. Values that do not apply or are not known are None or "".

    * `source`: where the schedule was declared: "code", "file" or "client".
    * `last_at`: the time of the latest occurrence whose time has come.
    * `next_at`: the time of the next occurrence.
    * `due_at`: when the next occurrence is due to start, including its delay by jitter.
    * `paused_at`: when the schedule was paused.
    * `error`: the reason why the data in Redis under this name is not a valid schedule.
    """

    name: str
    task: str = ""
    queue: str = ""
    cron: str = ""
    timezone: str = ""
    every: float | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    missed: Missed = "last"
    overlap: Overlap = "skip"
    jitter: float = 0.0
    start: datetime | None = None
    end: datetime | None = None
    source: Source | None = None
    last_at: datetime | None = None
    next_at: datetime | None = None
    due_at: datetime | None = None
    paused_at: datetime | None = None
    error: str = ""

    @property
    def when(self) -> str:
        """The times of the schedule in words, for example `0 3 * * * Europe/Zurich` or `every 30 s`."""
        return f"{self.cron} {self.timezone}".strip() if self.every is None else f"every {self.every:g} s"


class FoundSchedule(NamedTuple):
    """A schedule that was read from Redis: its name, the raw and the parsed record, its declaration, and the Redis time
    of the read."""

    kept: StoredSchedule
    record: ScheduleRecord
    schedule: Schedule
    now_us: int

    def upcoming(self, count: int) -> Times:
        """Return the times of the next `count` occurrences, as if the schedule were not paused."""
        coming = islice(occurrences(self.schedule, self.now_us), count)
        return [utc_datetime(each.at_us) for each in coming]

    def status(self) -> ScheduleStatus:
        """Return the schedule's status, as people and programs see it."""
        schedule = self.schedule
        record = self.record
        now_us = self.now_us
        passed = [at_us for at_us in (record.last_us, *record.ahead_us) if 0 < at_us <= now_us]
        following = None if record.paused_us else next_occurrence(schedule, now_us)
        return ScheduleStatus(
            name=self.kept.name,
            task=schedule.task,
            queue=schedule.queue,
            **_rule_in_words(schedule.rule),
            args=schedule.args,
            kwargs=dict(schedule.kwargs),
            missed=schedule.missed,
            overlap=schedule.overlap,
            jitter=schedule.jitter_us / MICROSECONDS,
            start=_time(schedule.start_us),
            end=_time(schedule.end_us),
            source=schedule.source,
            last_at=_time(max(passed, default=None)),
            next_at=_time(following and following.at_us),
            due_at=_time(following and following.due_us),
            paused_at=_time(record.paused_us or None),
        )


def rows_of(page: SchedulePage) -> list[dict[str, Any]]:
    """Return the schedules of a page as JSON objects, for `rota status` and the status page. `state` is waiting,
    paused, over (there are no more occurrences) or broken. `next_in_seconds` is based on Redis time, and is None unless
    the state is waiting."""
    found = [read_schedule(kept, page.now_us) for kept in page.schedules]
    now = utc_datetime(page.now_us)
    return [_row(each.status() if isinstance(each, FoundSchedule) else each, now) for each in found]


def _row(status: ScheduleStatus, now: datetime) -> dict[str, Any]:
    return {
        "name": status.name,
        "task": status.task,
        "queue": status.queue,
        "when": status.when,
        "source": status.source,
        "state": _state(status),
        "next_at": _text(status.next_at),
        "next_in_seconds": status.due_at and (status.due_at - now).total_seconds(),
        "last_at": _text(status.last_at),
        "error": status.error,
    }


def _state(status: ScheduleStatus) -> str:
    if status.error:
        return "broken"
    if status.paused_at is not None:
        return "paused"
    return "waiting" if status.next_at is not None else "over"


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _rule_in_words(rule: CronRule | EveryRule) -> dict[str, Any]:
    if isinstance(rule, EveryRule):
        return {"every": rule.interval_us / MICROSECONDS}
    return {"cron": rule.expression, "timezone": rule.timezone}


def _time(unix_us: int | None) -> datetime | None:
    return None if unix_us is None else utc_datetime(unix_us)


def read_schedule(kept: StoredSchedule, now_us: int) -> FoundSchedule | ScheduleStatus:
    """Parse a schedule that was read from Redis. If this fails, return a status with the error instead."""
    try:
        record = read_schedule_record(kept.record)
        return FoundSchedule(kept, record, decode_schedule(kept.name, record.text), now_us)
    except ValueError as error:
        return ScheduleStatus(shown(kept.name), error=str(error))
