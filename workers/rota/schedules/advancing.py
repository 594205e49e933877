"""What a poller does next about a schedule, worked out from its record, what it says, and Redis time. Pure."""

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple

from rota.protocol.body import Body, encode_body
from rota.protocol.schedules import OCCURRENCES_A_CALL, NewOccurrence, Record, occurrence_id
from rota.schedules.occurrences import Occurrence, next_occurrence, occurrences, reckon
from rota.schedules.schedule import Schedule

MOST_AHEAD: Final = 100
"""So many occurrences that jitter puts off can be taken back."""


class Advance(NamedTuple):
    """Enqueue these, and keep that record; `missed` occurrences are not made up for."""

    occurrences: tuple[NewOccurrence, ...]
    record: Record
    missed: int


def advance(schedule: Schedule, record: Record, now_us: int, ahead_us: int) -> Advance:
    """Deal with all occurrences up to `ahead_us` behind now, or with as many as a call takes."""
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
    return Advance(tuple(_new(schedule, each) for each in taken), becomes, reckoning.left_out)


def _until(schedule: Schedule, after_us: int, until_us: int) -> Iterator[Occurrence]:
    return takewhile(lambda each: each.at_us <= until_us, occurrences(schedule, after_us))


def _known(record: Record, taken: Iterable[Occurrence]) -> list[int]:
    return [*record.ahead_us, *(each.at_us for each in taken)]


def _last(record: Record, taken: Iterable[Occurrence], now_us: int) -> int:
    return max([record.last_us, *(at_us for at_us in _known(record, taken) if at_us <= now_us)])


def _ahead(schedule: Schedule, record: Record, taken: Iterable[Occurrence], now_us: int) -> tuple[int, ...]:
    waiting = [at_us for at_us in _known(record, taken) if at_us + schedule.jitter_us > now_us]
    return tuple(waiting[-MOST_AHEAD:])


def _new(schedule: Schedule, occurrence: Occurrence) -> NewOccurrence:
    task_id = occurrence_id(schedule.name, occurrence.at_us)
    return NewOccurrence(task_id, occurrence.due_us, body_of(schedule, task_id))


def body_of(schedule: Schedule, task_id: str) -> bytes:
    """The body of a task that a schedule enqueues."""
    return encode_body(Body(task_id, schedule.queue, schedule.task, list(schedule.args), dict(schedule.kwargs)))
