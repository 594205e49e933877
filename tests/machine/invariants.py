"""Checks that are made after each step: the data in Redis matches the model, and every promise of the protocol is
kept.
"""

from typing import Any

from hypothesis.stateful import invariant

from machine.base import QUEUES, RATES_OF_TASKS, SHARES, Machine, bell_of
from machine.picture import Picture
from model.ends import text_of
from model.items import Task, slack_us
from model.rotation import name_of


def id_of(text: str) -> str:
    return text.partition(" ")[0]


class Invariants(Machine):
    """The invariants. All of them check the same copy of the data, which is read once after each step."""

    @invariant()
    def all_promises_hold(self) -> None:
        picture = self.picture()
        self.places_match_the_model(picture)
        self.each_change_has_one_event()
        self.i1_each_accepted_id_is_in_exactly_one_place(picture)
        self.i2_each_ends_once()
        self.i3_starts_are_accounted_for(picture)
        self.i5_in_flight_lists_belong_to_registered_owners(picture)
        self.i6_first_attempts_are_in_order_of_arrival(picture)
        self.i7_nothing_is_ready_before_it_is_due(picture)
        self.each_occurrence_is_enqueued_once()
        self.i12_a_unique_key_is_held_by_one_live_task(picture)
        self.attempt_records_are_kept_exactly_as_long_as_its_task(picture)
        self.no_waiting_task_is_marked_started(picture)
        self.caps_and_rates_are_kept(picture)
        self.every_waiting_task_has_a_token(picture)
        self.a_poller_will_check_in_time(picture)
        self.each_move_is_in_the_table_of_states(picture)

    def places_match_the_model(self, picture: Picture) -> None:
        places, leases = self.model.places, self.model.leases
        for (queue, lane), texts in picture.lanes.items():
            assert texts == [item.text for item in places.lanes[queue, lane]]
        for owner, texts in picture.inflight.items():
            assert texts == [task.text for task in places.inflight.get(owner, [])]
        assert picture.tasks == {task.id: task.stored_body for task in places.tasks.values()}
        assert picture.delayed == {member: due for member, (due, _) in places.scheduled.items()}
        assert picture.dead == places.dead
        assert picture.owners == leases.expires
        assert picture.marked == places.marked
        rotation = self.model.rotation
        assert picture.rotation == rotation.as_kept()
        assert picture.turns == {name_of(turns.domain): turns.as_kept(rotation) for turns in places.turns}
        assert (picture.known, picture.idle) == (places.known, places.idle)
        assert picture.former == places.former
        assert picture.ends == text_of(places.memory.open)
        assert picture.sealed == {number: text_of(blocks) for number, blocks in places.memory.sealed.items()}
        assert picture.untold == "".join(f"\n{task_id} {at}" for task_id, at in places.memory.untold)
        assert picture.schedules == {name: known.record for name, known in self.model.schedules.items()}
        assert picture.schedules_due == {name: known.look_at for name, known in self.model.schedules.items()}
        assert picture.alive == self.model.alive
        assert picture.rates == self.model.rates.paid_off
        assert picture.counts == {name: number for name, number in places.counts.items() if number}

    def each_change_has_one_event(self) -> None:
        """Check that each change has exactly one event, and that the events have the order in which the scripts made
        the changes.
        """
        new: Any = self.fleet.redis.xrange(self.fleet.keys.events, self.compared_to)
        assert [fields for _, fields in new] == self.model.places.news.expected
        self.model.places.news.expected.clear()
        self.compared_to = f"({new[-1][0]}" if new else self.compared_to

    def i1_each_accepted_id_is_in_exactly_one_place(self, picture: Picture) -> None:
        """Check that each accepted id is in exactly one place. Each delayed or dead task must have a ticket, the text
        that Redis stores for it, and no other task may have one. Legacy items do not count, because they have not been
        accepted yet.
        """
        scheduled = [member for member in picture.delayed if member in picture.tickets]
        texts = [text for lists in (picture.lanes, picture.inflight) for texts in lists.values() for text in texts]
        entries = [id_of(text) for text in texts if id_of(text) in picture.tasks and not picture.is_tombstone(text)]
        assert sorted([*entries, *scheduled, *picture.dead]) == sorted(picture.tasks)
        assert sorted(picture.tickets) == sorted([*scheduled, *picture.dead])

    def i2_each_ends_once(self) -> None:
        audit = self.fleet.run(self.fleet.store.audit())
        assert audit.missing == 0
        assert audit.accepted == self.model.places.accepted.total()
        assert {how: number for how, number in audit.ended.items() if number} == self.model.places.ended

    def i3_starts_are_accounted_for(self, picture: Picture) -> None:
        """Check that the counters of each entry explain its claims. Each claim must have ended in a failure, a crash, a
        loss or a release, except the latest claim of a task that is still held.
        """
        held = {id_of(text) for texts in picture.inflight.values() for text in texts}
        lines = [text for lists in (picture.lanes, picture.inflight) for texts in lists.values() for text in texts]
        for line in lines:
            task = self.model.places.tasks.get(id_of(line))
            if task and not picture.is_tombstone(line):
                assert task.starts == sum(map(int, line.split(" ")[5:9])) + (task.id in held)
        for task_id, ticket in picture.tickets.items():
            assert self.model.places.tasks[task_id].starts == sum(map(int, ticket.split(" ")[2:6]))

    def i5_in_flight_lists_belong_to_registered_owners(self, picture: Picture) -> None:
        """Check that each in-flight list with entries belongs to a registered owner, or to an owner that was deleted by
        a fault.
        """
        held = {owner for owner, texts in picture.inflight.items() if texts}
        assert not held & self.reaped
        assert held <= set(picture.owners) | self.forgotten

    def i6_first_attempts_are_in_order_of_arrival(self, picture: Picture) -> None:
        """Check that those tasks in a ready lane that were never claimed are in the order in which they were enqueued.
        For returned tasks, the model checks the positions.
        """
        for queue in QUEUES:
            texts = [text for text in picture.lanes[queue, "ready"] if not picture.is_tombstone(text)]
            tasks = [self.model.places.tasks.get(id_of(text)) for text in texts]
            orders = [task.order for task in tasks if task and not task.starts and not task.is_front]
            assert orders == sorted(orders)

    def i7_nothing_is_ready_before_it_is_due(self, picture: Picture) -> None:
        for texts in [*picture.lanes.values(), *picture.inflight.values()]:
            for text in texts:
                if id_of(text) in picture.tasks:
                    due, ready = text.split(" ")[3:5]
                    assert int(due) <= int(ready)

    def each_occurrence_is_enqueued_once(self) -> None:
        """Check that no occurrence was enqueued twice, no matter how many pollers read the schedule's record and how
        the clock jumps.
        """
        assert all(times == 1 for times in self.model.went_on.values())

    def i12_a_unique_key_is_held_by_one_live_task(self, picture: Picture) -> None:
        """Check that each unique key is held by the live task that the model expects. A key is free once its task has
        ended or the requested time has passed.
        """
        places = self.model.places
        assert picture.keys == places.keys
        assert picture.holders == {key: holder for key, (holder, _) in places.holders.items()}
        for key, holder in picture.holders.items():
            assert holder in picture.tasks
            assert picture.keys[holder] == key

    def attempt_records_are_kept_exactly_as_long_as_its_task(self, picture: Picture) -> None:
        """Check that all stored records are attempt records of live tasks or death records of dead tasks."""
        living = {task_id: text for task_id, text in picture.epitaphs.items() if task_id not in picture.dead}
        assert living == self.model.places.attempt_records
        assert picture.epitaphs.keys() == {*living, *picture.dead}
        marked = {task.id for task in self.model.places.tasks.values() if any(map(str.isupper, task.flag))}
        assert marked == living.keys()

    def no_waiting_task_is_marked_started(self, picture: Picture) -> None:
        """Check that no task in a lane and no delayed task has a start mark. A task with a start mark may have been
        started, so it must be dead or held by an owner.
        """
        waiting = [text for texts in picture.lanes.values() for text in texts if id_of(text) in picture.tasks]
        flags = [text.rpartition(" ")[2] for text in [*waiting, *picture.tickets.values()]]
        assert not [flag for flag in flags if "b" in flag]

    def caps_and_rates_are_kept(self, picture: Picture) -> None:
        """Check that no queue runs more tasks than its cap permits. Also check that any `burst + 1` successive starts
        under a rate take at least `burst` intervals minus the slack.
        """
        if not self.forgotten:
            held = [text.split(" ")[1] for texts in picture.inflight.values() for text in texts]
            assert all(held.count(share.queue) <= share.cap for share in SHARES.values() if share.cap)
        rates = {name: (share.interval_us, share.burst) for name, share in SHARES.items()}
        rates |= {name: (asked.interval_us, asked.burst) for name, asked in RATES_OF_TASKS.items()}
        for name, starts in [*self.model.rates.starts.items(), *self.model.starts_by_rate.items()]:
            interval_us, burst = rates[name]
            for first, last in zip(starts, starts[burst:], strict=False):
                assert last - first >= burst * interval_us - slack_us(interval_us, burst)

    def every_waiting_task_has_a_token(self, picture: Picture) -> None:
        """Check that a worker will notice each task that can be claimed: the doorbell of its queue has a token, or a
        worker has taken the token and will report it. After a fault or a push without the client, the token may be
        missing until the next sweep. Queues with a rate or a condition are not checked, because workers have timers for
        these queues.
        """
        told = {queue for worker in self.workers.values() for queue in worker.tokens}
        claims = self.model.claims()
        for share in SHARES.values():
            waiting = self.model.places.entries(share.queue) and share.queue not in self.model.paused
            if waiting and not (share.interval_us or share.condition) and claims.starts(share) >= 1:
                heard = {share.queue, bell_of(share.queue)}
                assert picture.bells[bell_of(share.queue)] or heard & (told | self.without_token)
        assert all(tokens <= 1 for tokens in (*picture.bells.values(), picture.poller_bell))

    def a_poller_will_check_in_time(self, picture: Picture) -> None:
        """Check that a poller has a timer for the first due task, or that the pollers' doorbell has a token. If another
        program uses ZADD, a poller notices the new item only at its next check.
        """
        due = [at for at, item in self.model.places.scheduled.values() if isinstance(item, Task)]
        if due and not self.bare_is_unseen and not picture.poller_bell:
            assert self.poller_knows is not None
            assert self.poller_knows <= min(due)

    def each_move_is_in_the_table_of_states(self, picture: Picture) -> None:
        """Check that each change of a task's state is allowed by the table of states, given the scripts that have run
        since the last check.
        """
        self.states.check(picture, self.model.places.ended, self.fleet.scripts_run)
        self.fleet.scripts_run.clear()
