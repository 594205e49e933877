"""Pollers and clients that call the scripts for schedules one by one, for protocol tests."""

import dataclasses

from rota.protocol.schedule_store import (
    NewOccurrence,
    PutStatus,
    ScheduleRecord,
    ScheduleStore,
    StoredSchedule,
    occurrence_id,
    read_schedule_record,
)
from rota.protocol.scripts import ScriptCall
from rota.schedules.occurrences import Advance, advance, body_of
from rota.schedules.schedule import EveryRule, Schedule, decode_schedule, encode_schedule
from support.protocol import SECOND_US, Fleet

AHEAD_US = 5 * SECOND_US
TICK = Schedule("tick", "work", EveryRule(SECOND_US), "q", overlap="queue")
ALONE = dataclasses.replace(TICK, name="alone", overlap="skip")


class Pollers:
    """Pollers that a test drives call by call."""

    def __init__(self, fleet: Fleet, schedules: ScheduleStore) -> None:
        self.fleet = fleet
        self.store = schedules

    def look(self) -> tuple[int, tuple[StoredSchedule, ...]]:
        return self.fleet.run(self.store.upcoming(AHEAD_US))

    def plan(self, kept: StoredSchedule, now_us: int) -> tuple[ScriptCall[bool], Advance]:
        schedule, record = (
            decode_schedule(kept.name, read_schedule_record(kept.record).text),
            read_schedule_record(kept.record),
        )
        planned = advance(schedule, record, now_us, AHEAD_US)
        may_overlap = schedule.overlap == "queue"
        call = self.store.advance(kept, planned.record, schedule.queue, planned.occurrences, may_overlap=may_overlap)
        return call, planned

    def work(self) -> list[int]:
        """Enqueue all upcoming occurrences as a poller does, and return their due times."""
        now_us, found = self.look()
        enqueued: list[int] = []
        for kept in found:
            call, planned = self.plan(kept, now_us)
            if self.fleet.run(call):
                enqueued += [int(each.id.rpartition(":")[2]) for each in planned.occurrences]
        return enqueued

    def record(self, name: str = "tick") -> ScheduleRecord:
        return read_schedule_record(self.fleet.run(self.store.find([name])).schedules[0].record)


def put(fleet: Fleet, store: ScheduleStore, schedule: Schedule) -> PutStatus:
    return fleet.run(store.put(schedule.name, encode_schedule(schedule)))


def overdue(fleet: Fleet, schedule: Schedule, at_us: int, pollers: Pollers) -> str:
    """Create this schedule, enqueue its occurrence that is due at `at_us`, and return the id of the enqueued task."""
    put(fleet, pollers.store, schedule)
    kept = fleet.run(pollers.store.find([schedule.name])).schedules[0]
    task_id = occurrence_id(schedule.name, at_us)
    new = [NewOccurrence(task_id, at_us, body_of(schedule, task_id))]
    may_overlap = schedule.overlap == "queue"
    assert fleet.run(pollers.store.advance(kept, read_schedule_record(kept.record), "q", new, may_overlap=may_overlap))
    return task_id
