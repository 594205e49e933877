"""The occurrences of a schedule, and the next step of a poller, which depends on the schedule's record and Redis time.
This module does no I/O, so that every node gets the same result from the same schedule and times."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, takewhile
from typing import Final, NamedTuple, assert_never
from zlib import crc32

from rota.durations import MICROSECONDS
from rota.protocol.body import Body, encode_body
from rota.protocol.schedule_store import OCCURRENCES_A_CALL, NewOccurrence, ScheduleRecord, occurrence_id
from rota.protocol.signatures import NOT_BEFORE
from rota.schedules.cron import far_enough_back, times_after
from rota.schedules.schedule import CronRule, EveryRule, Schedule

MOST_MISSED: Final = 1000
LATE_US: Final = 30 * MICROSECONDS
MOST_AHEAD: Final = 100
"""The maximum number of occurrences that can still be withdrawn while jitter delays them."""


class Occurrence(NamedTuple):
    """One occurrence of a schedule."""

    at_us: int  # the time that the schedule gives, without jitter; it identifies the occurrence
    due_us: int  # when the occurrence is due to start, including its delay by jitter


class Reckoning(NamedTuple):
    """The decision of `reckon`: which occurrences of a schedule are enqueued at a given time, and how many are
    skipped."""

    enqueue: tuple[Occurrence, ...]  # occurrences to enqueue, in order
    left_out: int  # number of missed occurrences that are skipped; at most 1,000 are counted
    following: Occurrence | None  # the first occurrence in the future, or None if there is none

    @property
    def passed_us(self) -> int | None:
        """The `at_us` of the last occurrence in `enqueue`, or None if `enqueue` is empty. The next call continues after
        it."""
        return self.enqueue[-1].at_us if self.enqueue else None


def next_occurrence(schedule: Schedule, after_us: int) -> Occurrence | None:
    """Return the first occurrence after an instant, or None if there is none."""
    return next(occurrences(schedule, after_us), None)


def occurrences(schedule: Schedule, after_us: int) -> Iterator[Occurrence]:
    """Yield all occurrences after an instant, in order."""
    for at_us in _times(schedule, after_us):
        if schedule.end_us is not None and at_us >= schedule.end_us:
            return
        yield Occurrence(at_us, at_us + _jitter_us(schedule, at_us))


def reckon(schedule: Schedule, after_us: int, now_us: int) -> Reckoning:
    """Decide what to enqueue now. `after_us` is the time of the last occurrence that was handled, or the time at which
    the schedule was created.

    An occurrence counts as missed if it was due more than 30 s ago, and the option `missed` decides whether it is
    enqueued. An occurrence that was due within the last 30 s is always enqueued, because a restart of a poller must not
    skip it. If more than 1,000 occurrences have passed, only the last 1,000 are considered.
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
    start_us = max(after_us, _far_enough_back(schedule, now_us))
    return list(_until(schedule, start_us, now_us))[-MOST_MISSED:]


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
    # The delay is computed from the schedule's name and the occurrence's time, so that every poller gets the same
    # delay.
    if not schedule.jitter_us:
        return 0
    return crc32(f"{schedule.name} {at_us}".encode()) * schedule.jitter_us >> 32


class Advance(NamedTuple):
    """The next step of a schedule: the occurrences to enqueue, the new record, and the number of missed occurrences to
    skip."""

    occurrences: tuple[NewOccurrence, ...]
    record: ScheduleRecord
    missed: int


Sign = Callable[[bytes], bytes]
"""A function that returns a body with a signature: see `rota.tasks.keyring`."""


def advance(
    schedule: Schedule, record: ScheduleRecord, now_us: int, ahead_us: int, sign: Sign | None = None
) -> Advance:
    """Compute the step that handles all occurrences until `ahead_us` microseconds after now, or as many of them as one
    call can enqueue. With `sign`, the bodies of the enqueued tasks are signed."""
    reckoning = reckon(schedule, record.passed_us, now_us)
    coming = _until(schedule, max(record.passed_us, now_us), now_us + ahead_us)
    found = tuple(islice((*reckoning.enqueue, *coming), OCCURRENCES_A_CALL + 1))
    taken = found[:OCCURRENCES_A_CALL]
    passed_us = max([record.passed_us, *(each.at_us for each in taken)])
    if len(found) == len(taken):
        passed_us = max(passed_us, now_us)
    following = next_occurrence(schedule, passed_us)
    becomes = dataclasses.replace(
        record,
        passed_us=passed_us,
        last_us=_last(record, taken, now_us),
        next_us=None if following is None else following.at_us,
        ahead_us=_ahead(schedule, record, taken, now_us),
    )
    return Advance(tuple(_new(schedule, each, sign) for each in taken), becomes, reckoning.left_out)


def _known(record: ScheduleRecord, taken: Iterable[Occurrence]) -> list[int]:
    return [*record.ahead_us, *(each.at_us for each in taken)]


def _last(record: ScheduleRecord, taken: Iterable[Occurrence], now_us: int) -> int:
    return max([record.last_us, *(at_us for at_us in _known(record, taken) if at_us <= now_us)])


def _ahead(schedule: Schedule, record: ScheduleRecord, taken: Iterable[Occurrence], now_us: int) -> tuple[int, ...]:
    waiting = [at_us for at_us in _known(record, taken) if at_us + schedule.jitter_us > now_us]
    return tuple(waiting[-MOST_AHEAD:])


def _new(schedule: Schedule, occurrence: Occurrence, sign: Sign | None) -> NewOccurrence:
    task_id = occurrence_id(schedule.name, occurrence.at_us)
    return NewOccurrence(task_id, occurrence.due_us, body_of(schedule, task_id, occurrence.due_us, sign))


def body_of(schedule: Schedule, task_id: str, due_us: int = 0, sign: Sign | None = None) -> bytes:
    """Return the body of the task that a schedule enqueues for an occurrence. With `sign`, the body is signed together
    with its due time."""
    body = Body(task_id, schedule.queue, schedule.task, list(schedule.args), dict(schedule.kwargs))
    if sign is None:
        return encode_body(body)
    if due_us:
        body.extra[NOT_BEFORE] = due_us
    return sign(encode_body(body))
