"""Actions that clients, nodes and pollers perform on schedules. A poller may use a record that it read long before."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from machine.base import ANSWERED, DELIVERIES, LEASE_US, QUEUES, SECOND_US
from machine.working import Working
from rota.protocol.schedule_store import (
    DeclaredSchedule,
    DeclareStatus,
    ScheduleStore,
    StoredSchedule,
    read_schedule_record,
)
from rota.schedules.occurrences import advance, body_of
from rota.schedules.schedule import EveryRule, Missed, Overlap, Schedule, decode_schedule, encode_schedule
from support.protocol import LEASE_MS

AHEAD_US = 25 * SECOND_US
NAMES = ("s1", "s2")
OVERLAPS: st.SearchStrategy[Overlap] = st.sampled_from(["skip", "skip", "queue"])
MISSED: st.SearchStrategy[Missed] = st.sampled_from(["all", "last", "none"])
ACTS = st.sampled_from(["put"] * 2 + ["declare", "pause", "resume", "remove", "forget"] + ["run", "look"] * 2)


class Schedules(Working):
    """Rules for schedules. One rule has all actions of operators and nodes, another has those of pollers, and a third
    makes an occurrence due.
    """

    @rule(data=st.data(), act=ACTS, name=st.sampled_from(NAMES), delivery=DELIVERIES)
    def schedules(self, data: st.DataObject, act: str, name: str, delivery: str) -> None:
        {
            "put": self.put_schedule,
            "declare": self.declare,
            "pause": self.pause_schedule,
            "resume": self.resume_schedule,
            "remove": self.remove_schedule,
            "forget": self.forget_schedule,
            "run": self.run_schedule,
            "look": self.look_at_schedules,
        }[act](data, name, delivery)

    @property
    def store(self) -> ScheduleStore:
        return ScheduleStore(self.fleet.keys.namespace)

    def draw_schedule(self, data: st.DataObject, name: str) -> Schedule:
        rule_ = EveryRule(data.draw(st.sampled_from([10, 20])) * SECOND_US)
        queue = data.draw(st.sampled_from(QUEUES))
        return Schedule(name, "work", rule_, queue, missed=data.draw(MISSED), overlap=data.draw(OVERLAPS))

    def put_schedule(self, data: st.DataObject, name: str, delivery: str) -> None:
        text = encode_schedule(self.draw_schedule(data, name))

        def check(status: str) -> None:
            assert status == self.model.put_schedule(self.now, name, text.decode())

        self.call(self.store.put(name, text), check, delivery)

    def declare(self, data: st.DataObject, name: str, delivery: str) -> None:
        text, age = encode_schedule(self.draw_schedule(data, name)), data.draw(st.integers(0, 3))

        def check(statuses: list[DeclareStatus]) -> None:
            assert statuses == [self.model.declare(self.now, name, text.decode(), age * SECOND_US, LEASE_US)]

        self.call(self.store.declare(LEASE_MS, [DeclaredSchedule(name, text, age)]), check, delivery)

    def pause_schedule(self, _: st.DataObject, name: str, delivery: str) -> None:
        def check(status: str) -> None:
            assert status == self.model.pause_schedule(self.now, name)

        self.call(self.store.pause(name), check, delivery)

    def resume_schedule(self, _: st.DataObject, name: str, delivery: str) -> None:
        def check(status: str) -> None:
            assert status == self.model.resume_schedule(self.now, name)

        self.call(self.store.resume(name), check, delivery)

    def remove_schedule(self, _: st.DataObject, name: str, delivery: str) -> None:
        def check(status: str) -> None:
            assert status == self.model.remove_schedule(self.now, name, None)

        self.call(self.store.remove(name), check, delivery)

    def forget_schedule(self, data: st.DataObject, name: str, delivery: str) -> None:
        patience = data.draw(st.sampled_from([0, LEASE_US]))

        def check(status: str) -> None:
            assert status == self.model.remove_schedule(self.now, name, patience)

        self.call(self.store.forget(name, patience), check, delivery)

    def run_schedule(self, data: st.DataObject, name: str, delivery: str) -> None:
        """Run a schedule now. The run is based on a record that was read earlier and may be out of date."""
        if not self.readings:
            self.look_at_schedules(data, name, ANSWERED)
        for _, kept in self.readings[:1]:
            schedule = decode_schedule(kept.name, read_schedule_record(kept.record).text)
            task_id = f"{kept.name}:now-{next(self.ids)}"
            body, may_overlap = body_of(schedule, task_id), schedule.overlap == "queue"
            command = self.store.run(kept, schedule.queue, task_id, body, may_overlap=may_overlap)
            args = ((kept.name, kept.record.decode()), schedule.queue, task_id, body.decode())

            def check(answer: tuple[str, str]) -> None:
                status = self.model.run_schedule(self.now, *args, may_overlap=may_overlap)  # noqa: B023 - called in here
                assert " ".join(answer).strip() == status

            self.call(command, check, delivery)

    def look_at_schedules(self, _: st.DataObject, __: str, delivery: str) -> None:
        def check(answer: tuple[int, tuple[StoredSchedule, ...]]) -> None:
            found = [(kept.name, kept.record.decode()) for kept in answer[1]]
            assert found == self.model.upcoming(self.now, AHEAD_US)

        answer = self.call(self.store.upcoming(AHEAD_US), check, delivery)
        if answer:
            self.readings = [*self.readings[-4:], *((answer[0], kept) for kept in answer[1])]

    @rule(data=st.data(), delivery=DELIVERIES)
    def a_poller_advances(self, data: st.DataObject, delivery: str) -> None:
        """Let a poller advance a schedule. The poller uses a record that it read earlier and that may be out of
        date.
        """
        if self.readings:
            self.send_advance(*data.draw(st.sampled_from(self.readings)), delivery)

    def send_advance(self, now_us: int, kept: StoredSchedule, delivery: str = ANSWERED) -> None:
        record = read_schedule_record(kept.record)
        schedule = decode_schedule(kept.name, record.text)
        planned = advance(schedule, record, now_us, AHEAD_US)
        may_overlap = schedule.overlap == "queue"
        new = [(each.id, each.due_us, each.body.decode()) for each in planned.occurrences]
        becomes = planned.record.to_bytes().decode()

        def check(is_done: bool) -> None:
            args = ((kept.name, kept.record.decode()), becomes, schedule.queue, new)
            assert is_done == self.model.advance(self.now, *args, may_overlap=may_overlap)

        command = self.store.advance(kept, planned.record, schedule.queue, planned.occurrences, may_overlap=may_overlap)
        self.call(command, check, delivery)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def an_occurrence_comes(self, data: st.DataObject, name: str) -> None:
        """Let two pollers with the same record enqueue an occurrence, and promote the occurrence when it is due. Random
        steps rarely reach this situation.
        """
        if name not in self.model.schedules:
            self.put_schedule(data, name, ANSWERED)
        self.look_at_schedules(data, name, ANSWERED)
        for now_us, kept in list(self.readings[-2:]):
            self.send_advance(now_us, kept)
            self.send_advance(now_us, kept)
        known = self.model.schedules.get(name)
        if known and known.ahead:
            self.move_clock(max(0, known.ahead[0] - self.now))
            self.send_promote()
