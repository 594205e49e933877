"""The actions of operators, and the commands with which they inspect a fleet."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import (
    ALWAYS,
    ANSWERED,
    DELIVERIES,
    FAST,
    FEW,
    HEARTBEAT,
    HOUR_MS,
    KEPT,
    NAMES,
    QUEUES,
    SECOND_US,
    SERVED,
    bell_of,
)
from machine.producing import WISHES
from machine.working import OUTCOMES, VERBS, Working
from model.conditions import Hours, Rule
from model.ends import named_in
from model.items import UNKNOWN_QUEUE, New, Task
from rota.protocol.replies import Bounded, CancelStatus
from support.audit_walks import walk
from support.protocol import body_of

ACTS = st.sampled_from(
    ["cancel"] * 3
    + ["revive", "purge"] * 2
    + ["pause", "resume", "purge_dead", "trim", "heal", "look", "look_at_queues", "announce", "audit"]
    + ["an_entry_is_lost"] * 2
    + ["conditions_change"] * 3
)
# Each tuple has the time until which the hours are known, followed by the start and the end of each open period. All
# times are in seconds from now.
HOURS = [(3600, -60, 3600), (3600, -60, 30), (3600, 5, 60), (3600, -60, -30, 2, 4, 10, 3600), (3600,), (-1, -60, -30)]
RULES = [
    ALWAYS,
    Rule("return running < 2", lambda seen: seen.running < 2),
    Rule(
        "return ready >= 3 or delayed > 0 and running == 0", lambda s: s.ready >= 3 or (s.delayed > 0 and not s.running)
    ),
    Rule("return now % 60 < 30", lambda seen: seen.now % 60 < 30),
    Rule("return ready + nil", lambda _: None),
]
ENOUGH = 8
"""The number of tasks below which no rule empties a queue."""


class People(Working):
    """Actions and inspections of operators. They share one rule, because they would otherwise take up too many of the
    random steps.
    """

    @rule(data=st.data(), act=ACTS, delivery=DELIVERIES)
    def people(self, data: st.DataObject, act: str, delivery: str) -> None:
        {
            "cancel": self.cancel,
            "pause": self.pause,
            "resume": self.resume,
            "purge": self.purge,
            "revive": self.revive,
            "purge_dead": self.purge_dead,
            "trim": self.trim,
            "heal": self.heal,
            "look": self.look,
            "look_at_queues": self.look_at_queues,
            "announce": self.announce,
            "audit": self.audit,
            "an_entry_is_lost": self.an_entry_is_lost,
            "conditions_change": self.conditions_change,
        }[act](data, delivery)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), verb=VERBS, delivery=DELIVERIES)
    def cancel_what_runs(self, data: st.DataObject, verb: str, delivery: str) -> None:
        """Cancel a running task, and settle the task. It must get no further attempt, whatever its outcome."""
        worker = self.workers[self.pick(data, self.workers)]
        if not worker.claims:
            self.bring_if_few(data)
            self.take_turn(worker, 2)
        if worker.claims:
            self.send_cancel(worker.claims[0].entry.id, delivery)
            worker.pending.append((worker.claims.pop(0), OUTCOMES[verb]))
            self.take_turn(worker, 1)

    def cancel(self, data: st.DataObject, delivery: str) -> None:
        """Cancel a running task, a dead task, or any task. The rule first draws which of the three it is, because
        otherwise nearly all cancelled tasks would be in lanes.
        """
        places = self.model.places
        running = [task.id for held in places.inflight.values() for task in held]
        groups = [group for group in (running, list(places.dead), list(places.tasks)) if group]
        if groups:
            self.send_cancel(self.pick(data, data.draw(st.sampled_from(groups))), delivery)

    @rule(data=st.data(), wish=WISHES, again=st.booleans())
    def cancel_and_enqueue_again(
        self, data: st.DataObject, wish: tuple[str, str, tuple[str, int], int], again: bool
    ) -> None:
        """Cancel a task that waits in a lane, and enqueue another task with the same id, which must be free at once.
        Random steps rarely reach this situation.
        """
        queue, due, (key, hold_ms), _ = wish
        self.bring_if_few(data)
        places = self.model.places
        waiting = [item.id for items in places.lanes.values() for item in items if isinstance(item, Task)]
        for task_id in [self.pick(data, waiting)] * (1 + again) if waiting else []:
            self.send_cancel(task_id)
            self.enqueue_news([New(task_id, queue, body_of(task_id, queue).decode(), due, key, hold_ms)])

    def send_cancel(self, task_id: str, delivery: str = ANSWERED) -> None:
        def check(status: CancelStatus) -> None:
            assert status == self.model.cancel(self.now, task_id)

        self.call(self.fleet.store.cancel(task_id), check, delivery)

    def pause(self, data: st.DataObject, delivery: str) -> None:
        """Pause a queue. At most one queue is paused at a time, because otherwise little else would happen."""
        queue = next(iter(self.model.paused), None) or data.draw(st.sampled_from(QUEUES))

        def check(changed: int) -> None:
            assert changed == self.model.pause(self.now, queue)

        self.call(self.fleet.store.pause(queue), check, delivery)

    def resume(self, data: st.DataObject, delivery: str) -> None:
        queue = next(iter(self.model.paused), None) or data.draw(st.sampled_from(QUEUES))

        def check(changed: int) -> None:
            assert changed == self.model.resume(queue)

        self.call(self.fleet.store.resume(queue), check, delivery)

    def purge(self, data: st.DataObject, delivery: str) -> None:
        queue = data.draw(st.sampled_from([one for one in QUEUES if self.model.places.entries(one)] or QUEUES))

        def check(reply: Bounded) -> None:
            assert (reply.count, reply.more) == (self.model.purge(self.now, queue), False)

        if len(self.model.places.tasks) > ENOUGH:
            self.call(self.fleet.store.purge(queue), check, delivery)

    def revive(self, data: st.DataObject, delivery: str) -> None:
        self.send_revive(self._some_dead(data), delivery)

    def _some_dead(self, data: st.DataObject) -> list[str]:
        dead = st.sampled_from([*self.model.places.dead, "nobody"])
        return data.draw(st.lists(dead, min_size=1, max_size=3))

    def send_revive(self, ids: list[str], delivery: str = ANSWERED) -> None:
        def check(revived: int) -> None:
            assert revived == self.model.revive(self.now, ids)

        self.call(self.fleet.store.revive(ids), check, delivery)

    def purge_dead(self, data: st.DataObject, delivery: str) -> None:
        ids = self._some_dead(data)

        def check(forgotten: int) -> None:
            assert forgotten == self.model.purge_dead(ids)

        self.call(self.fleet.store.purge_dead(ids), check, delivery)

    def trim(self, data: st.DataObject, delivery: str) -> None:
        seconds, most = data.draw(st.sampled_from([1, 20, 3600])), data.draw(st.integers(1, 4))

        def check(reply: Bounded) -> None:
            assert (reply.count, reply.more) == (self.model.trim(self.now, seconds * SECOND_US, most), False)

        self.call(self.fleet.store.trim(seconds * SECOND_US, most), check, delivery)

    def heal(self, data: st.DataObject, _: str) -> None:
        """Set a counter to a wrong number, as if by hand, and let `heal` correct it."""
        field = f"{data.draw(st.sampled_from(['running', 'delayed', 'dead']))}:{data.draw(st.sampled_from(QUEUES))}"
        if not self.is_full:
            self.fleet.redis.hset(self.fleet.keys.counts, field, 7)
        cursor = self.fleet.run(self.fleet.store.heal("0"))
        while cursor != "0":
            cursor = self.fleet.run(self.fleet.store.heal(cursor))
        self.model.places.recount(self.model.leases.expires)

    def look(self, data: st.DataObject, _: str) -> None:
        places = self.model.places
        known = [*places.tasks, *places.results, *places.memory.ids(), "nobody"]
        task_id = data.draw(st.sampled_from(known))
        found = self.fleet.run(self.fleet.store.status(task_id))
        assert found.state == self.model.state(task_id)
        if found.state != "dead" and not self.is_cancelled(task_id) and not self.has_no_known_lane(task_id):
            assert found.attempt_records.decode() == places.attempt_records.get(task_id, "")

    def is_cancelled(self, task_id: str) -> bool:
        """Whether the task is live and was cancelled. For such a task, no attempt records are reported."""
        task = self.model.places.tasks.get(task_id)
        return task is not None and task.cancelled

    def has_no_known_lane(self, task_id: str) -> bool:
        """Whether the lane of a waiting task cannot be found because the task's body names no queue."""
        task = self.model.places.tasks.get(task_id)
        is_nameless = task is not None and named_in(task.body)[0] == UNKNOWN_QUEUE
        return is_nameless and self.model.state(task_id) == "ready"

    def look_at_queues(self, _: st.DataObject, __: str) -> None:
        overview = self.fleet.run(self.fleet.store.overview(QUEUES))
        places = self.model.places
        # The clock may have just jumped, and the result of a condition with hours depends on the time.
        places.at(self.now)
        for row in overview.queues:
            counts = [places.counts[f"{place}:{row.queue}"] for place in ("delayed", "running", "dead")]
            legacy_items = self.model.legacy_items() if row.queue == UNKNOWN_QUEUE else 0
            assert [row.scheduled - legacy_items, row.inflight, row.dead] == counts
            assert (row.ready, row.accepted) == (len(places.entries(row.queue)), places.accepted[row.queue])
            assert row.paused == (row.queue in self.model.paused)
            by, fails = self.model.closed_by(row.queue)
            assert (row.closed_by, bool(row.condition_error)) == (by or "", fails)
            closed_for = 0 if by is None else self.now - self.model.closed.get(row.queue, self.now)
            assert row.closed_age_us == max(
                0, closed_for
            )  # if the clock was set back, the queue may have been closed at a time that is now in the future
            assert row.served == (self.model.served.get(bell_of(row.queue), 0) > self.now)

    def announce(self, data: st.DataObject, _: str) -> None:
        """Publish the list of served queues. Tasks for other queues are accepted too, but their producers get a
        warning.
        """
        queues, hours = data.draw(st.lists(st.sampled_from(NAMES), unique=True)), data.draw(st.integers(1, 3))
        others = [self.kept._replace(ends=2), self.kept._replace(ends=0), KEPT, KEPT._replace(events=0)]
        kept = data.draw(st.sampled_from([self.kept, self.kept, *others]))
        self.fleet.run(self.fleet.store.announce("node", HEARTBEAT, hours * HOUR_MS, queues, kept))
        self.model.announce(self.now, queues, hours * HOUR_MS * 1000, kept.ends, kept.events, shares=SERVED)

    def conditions_change(self, data: st.DataObject, delivery: str) -> None:
        """Publish a condition with hours and a condition in Lua, or only the condition with hours, or neither."""
        hours, rule = data.draw(st.sampled_from(HOURS)), data.draw(st.sampled_from(RULES))
        now, told = self.now, data.draw(st.sampled_from([2, 2, 2, 1, 0]))
        known_until, *intervals = (now + second * SECOND_US for second in hours)
        conditions: dict[str, Hours | Rule] = {
            FAST.condition: Hours(known_until, tuple(zip(intervals[::2], intervals[1::2], strict=True))),
            FEW.condition: rule,
        }
        self.define(dict(list(conditions.items())[:told]), delivery)

    def audit(self, _: st.DataObject, __: str) -> None:
        """Check that the audit reports the tasks of deleted owners as unplaced, and no other tasks."""
        places, known = self.model.places, self.model.leases.expires
        orphaned = [task.id for owner, held in places.inflight.items() if owner not in known for task in held]
        assert walk(self.fleet) == sorted(task_id for task_id in orphaned if task_id in places.tasks)

    def an_entry_is_lost(self, data: st.DataObject, _: str) -> None:
        """Remove an entry from its lane, as if by hand. The audit must find the task of the entry, and `restore` must
        put back unplaced tasks only.
        """
        self.bring_if_few(data)
        places, keys = self.model.places, self.fleet.keys
        standing = [task for lane in places.lanes.values() for task in lane if isinstance(task, Task)]
        tasks = [task for task in standing if not task.is_tombstone]
        if not tasks:
            return
        lost = data.draw(st.sampled_from(tasks))
        key = keys.ready_lane(lost.queue) if lost.lane == "ready" else keys.delayed_lane(lost.queue)
        assert self.fleet.redis.lrem(key, 1, lost.text) == 1
        lane = places.lanes[lost.queue, lost.lane]
        lane[:] = [item for item in lane if item is not lost]
        assert lost.id in walk(self.fleet)
        held = [task.id for owner in self.model.leases.expires for task in places.inflight.get(owner, [])]
        ids = [lost.id, "nobody", *places.dead, *held]
        statuses = self.fleet.run(self.fleet.store.restore(ids))
        assert [str(status) for status in statuses] == self.model.restore(self.now, ids)
