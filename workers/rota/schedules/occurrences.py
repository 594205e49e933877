"""When a schedule is due. Pure: whoever reckons from the same schedule and instants gets the same, on any node."""

from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import Final, NamedTuple, assert_never
from zlib import crc32

from rota.durations import MICROSECONDS
from rota.schedules.cron import far_enough_back, times_after
from rota.schedules.schedule import CronRule, EveryRule, Schedule

MOST_MISSED: Final = 1000
LATE_US: Final = 30 * MICROSECONDS


class Occurrence(NamedTuple):
    """`at_us`: the time that the schedule names, which tells it from all others; `due_us`: when it is to start, which
    jitter puts off."""

    at_us: int
    due_us: int


class Reckoning(NamedTuple):
    """What is to be done about a schedule at an instant: `enqueue` these, in order; `left_out` were missed and are not
    made up for (at most 1,000 are counted); `following` is the first that lies ahead, None when there is none."""

    enqueue: tuple[Occurrence, ...]
    left_out: int
    following: Occurrence | None

    @property
    def passed_us(self) -> int | None:
        """The `at_us` of the last of `enqueue`, to reckon on behind it; None when there is none."""
        return self.enqueue[-1].at_us if self.enqueue else None


def next_occurrence(schedule: Schedule, after_us: int) -> Occurrence | None:
    """The first occurrence behind an instant, None when there is none."""
    return next(occurrences(schedule, after_us), None)


def occurrences(schedule: Schedule, after_us: int) -> Iterator[Occurrence]:
    """All occurrences behind an instant, in order."""
    for at_us in _times(schedule, after_us):
        if schedule.end_us is not None and at_us >= schedule.end_us:
            return
        yield Occurrence(at_us, at_us + _jitter_us(schedule, at_us))


def reckon(schedule: Schedule, after_us: int, now_us: int) -> Reckoning:
    """What is to be done now; `after_us` is the last occurrence that was dealt with, or when the schedule was new.

    An occurrence was missed when it was due more than 30 s ago. One that is late by less is enqueued whatever `missed`
    says: a poller that was restarted has missed nothing. Of more than 1,000 that lie behind, only the last 1,000 are
    looked at.
    """
    passed = _passed(schedule, after_us, now_us)
    missed = [each for each in passed if each.due_us < now_us - LATE_US]
    late = [each for each in passed if each.due_us >= now_us - LATE_US]
    made_up_for = _made_up_for(schedule, missed, late)
    enqueue = tuple(sorted((*made_up_for, *late)))
    return Reckoning(enqueue, len(missed) - len(made_up_for), next_occurrence(schedule, now_us))


def _made_up_for(schedule: Schedule, missed: list[Occurrence], late: list[Occurrence]) -> list[Occurrence]:
    match schedule.missed:
        case "all":
            return missed
        case "last":
            return [] if late else missed[-1:]
        case "none":
            return []
        case _:
            assert_never(schedule.missed)


def _passed(schedule: Schedule, after_us: int, now_us: int) -> list[Occurrence]:
    found = list(islice(_until(schedule, after_us, now_us), MOST_MISSED + 1))
    if len(found) <= MOST_MISSED:
        return found
    begin_us = max(after_us, _far_enough_back(schedule, now_us))
    return list(_until(schedule, begin_us, now_us))[-MOST_MISSED:]


def _until(schedule: Schedule, after_us: int, now_us: int) -> Iterator[Occurrence]:
    return takewhile(lambda each: each.at_us <= now_us, occurrences(schedule, after_us))


def _far_enough_back(schedule: Schedule, now_us: int) -> int:
    latest_us = now_us if schedule.end_us is None else min(now_us, schedule.end_us)
    match schedule.rule:
        case EveryRule(interval_us):
            return latest_us - (MOST_MISSED + 1) * interval_us
        case CronRule(expression, timezone):
            return far_enough_back(expression, timezone, latest_us, MOST_MISSED)
        case _:
            assert_never(schedule.rule)


def _times(schedule: Schedule, after_us: int) -> Iterator[int]:
    start_us = schedule.start_us or 0
    behind_us = max(after_us, start_us - 1)
    match schedule.rule:
        case EveryRule(interval_us):
            passed = (behind_us - start_us) // interval_us
            return count(start_us + (passed + 1) * interval_us, interval_us)
        case CronRule(expression, timezone):
            return times_after(expression, timezone, behind_us)
        case _:
            assert_never(schedule.rule)


def _jitter_us(schedule: Schedule, at_us: int) -> int:
    # Drawn from the name and the time, so that every poller draws the same.
    if not schedule.jitter_us:
        return 0
    return crc32(f"{schedule.name} {at_us}".encode()) * schedule.jitter_us >> 32
