"""What the schedules of declared tasks enqueue while a clock is moved: each occurrence, as by a fleet that keeps up."""

from itertools import islice, takewhile
from typing import Final

from rota.protocol.new_tasks import NewTask
from rota.protocol.schedule_store import occurrence_id
from rota.schedules.occurrences import Occurrence, body_of, occurrences
from rota.schedules.schedule import Schedule
from rota.tasks.registry import default_registry

_MOST: Final = 10_000


def occurrences_between(after_us: int, until_us: int) -> list[NewTask]:
    """Their tasks, in order. Raises ValueError for more than 10,000 of one schedule."""
    found = [
        (each.due_us, schedule, each)
        for task in default_registry
        for schedule in task.schedules
        for each in _of(schedule, after_us, until_us)
    ]
    return [_new(schedule, each) for _, schedule, each in sorted(found, key=lambda one: one[0])]


def _of(schedule: Schedule, after_us: int, until_us: int) -> list[Occurrence]:
    passed = takewhile(lambda each: each.at_us <= until_us, occurrences(schedule, after_us))
    found = list(islice(passed, _MOST + 1))
    if len(found) > _MOST:
        raise ValueError(
            f"the schedule {schedule.name!r} occurs more than {_MOST:,} times: move the clock in steps, or have it "
            "begin where the test plays, as in capture(at=...)"
        )
    return found


def _new(schedule: Schedule, occurrence: Occurrence) -> NewTask:
    task_id = occurrence_id(schedule.name, occurrence.at_us)
    return NewTask(task_id, schedule.queue, body_of(schedule, task_id), f"@{occurrence.due_us}")
