"""Rules and invariants for groups and chains."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from machine.base import ANSWERED, DELIVERIES, QUEUES, SECOND_US, Worker
from machine.opening import Opening
from machine.people import People
from machine.producing import WISHES
from machine.working import OUTCOMES, VERBS
from model.grouping import Member, Target
from model.groups import Chain
from model.items import New
from rota.protocol.groups import Added, CancelledGroup, HealedMembers, Into
from rota.protocol.groups import Opening as GroupOpening
from rota.protocol.new_tasks import NewMember, NewTask, follow_text
from rota.protocol.task_states import ENDS
from support.protocol import body_of

DUES = st.sampled_from(["", "", "", "^", "+1000000", "+1000000^", "@1"])
FOLLOWING = st.lists(st.tuples(st.sampled_from(QUEUES), DUES, st.integers(0, 9)), max_size=2)
CURSORS = st.sampled_from([None, None, "right", "right", "wrong"])


def new_task(new: New) -> NewTask:
    return NewTask(new.id, new.queue, new.body.encode(), new.due, new.unique_key, new.hold_ms)


class Grouping(Opening, People):
    """Rules for groups. Members are added together or one by one. They end in every possible way, while groups are
    closed and cancelled.
    """

    @rule(
        data=st.data(),
        wishes=st.lists(st.tuples(WISHES, FOLLOWING), max_size=3),
        cursor=CURSORS,
        closes=st.booleans(),
        delivery=DELIVERIES,
    )
    def add_members(
        self,
        data: st.DataObject,
        wishes: list[tuple[tuple[str, str, tuple[str, int], int], list[tuple[str, str, int]]]],
        cursor: str | None,
        closes: bool,
        delivery: str,
    ) -> None:
        """Add members to a new group or to an existing one, or enqueue chains that belong to no group."""
        group = data.draw(st.sampled_from([f"g{next(self.ids)}", *self.model.groups, ""]))
        opening = self._chain(data.draw(FOLLOWING)), self._chain(data.draw(FOLLOWING))
        known = self.model.groups.get(group)
        before = (known.cursor if known else 0) + (cursor == "wrong")
        members = [(self._first(*wish), self._chain(following)) for wish, following in wishes]
        to = Target(group, data.draw(st.sampled_from([opening, opening, None])), before if cursor else None, closes)
        self.send_members(members, to, delivery)

    def _first(self, queue: str, due: str, key: tuple[str, int], luck: int) -> New:
        return New(self._an_id(luck), queue, body_of("m", queue).decode(), due, *key)

    def _chain(self, wishes: list[tuple[str, str, int]]) -> Chain:
        return tuple(New(self._an_id(luck), queue, body_of("f", queue).decode(), due) for queue, due, luck in wishes)

    def _an_id(self, luck: int) -> str:
        """Return a new id or, sometimes, the id of a live or ended task."""
        known = [*self.model.places.former, *self.model.places.tasks]
        return known[0] if known and not luck else f"m{next(self.ids)}"

    def send_members(self, members: list[Member], to: Target, delivery: str = ANSWERED) -> None:
        nonce = f"{self.fleet.keys.namespace}-{next(self.ids)}"
        opening = to.opening and GroupOpening(*(follow_text(map(new_task, chain)) for chain in to.opening))
        into = Into(to.group, opening, to.cursor, to.closes)
        new_members = [NewMember(new_task(new), follow_text(map(new_task, chain))) for new, chain in members]

        def check(added: Added) -> None:
            status, cursor, statuses = self.model.add_members(self.now, nonce, members, to)
            assert (added.status, added.cursor) == (status, cursor)
            refused = [status.partition(" ")[2] for status in statuses if status not in {"ok", "unserved"}]
            assert [answer.holder for answer in added.enqueued if answer.duplicate] == refused
            assert len(added.enqueued) == len(statuses)

        self.call(self.fleet.store.add_members(nonce, new_members, into), check, delivery)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), delivery=DELIVERIES)
    def close_group(self, data: st.DataObject, delivery: str) -> None:
        group = self.pick(data, [*self.model.groups, "unknown"])

        def check(is_known: bool) -> None:
            assert is_known == self.model.close_group(self.now, group)

        self.call(self.fleet.store.close_group(group), check, delivery)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), delivery=DELIVERIES, cancels=st.booleans())
    def cancel_group(self, data: st.DataObject, delivery: str, cancels: bool) -> None:
        """Cancel a group and then its members. If `cancels` is not set, the caller dies before it can cancel the
        members.
        """
        group = self.pick(data, [*self.model.groups, "unknown"])

        def check(reply: CancelledGroup) -> None:
            assert (reply.is_known, set(reply.ids)) == self.model.cancel_group(self.now, group)

        reply = self.call(self.fleet.store.cancel_group(group), check, delivery)
        for task_id in sorted(reply.ids) if reply and cancels else []:
            self.send_cancel(task_id)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), verbs=st.lists(VERBS, min_size=1, max_size=3), queue=st.sampled_from(QUEUES))
    def a_group_is_worked_off(self, data: st.DataObject, verbs: list[str], queue: str) -> None:
        """Enqueue a group with a chain among its members, and take some turns in which the members run. This rule is
        needed because random steps complete too few groups.
        """
        worker = self.workers[self.pick(data, self.workers)]
        new = [self._first(queue, "", ("", 0), 1) for _ in range(3)]
        then, on_dead = self._chain([(queue, "", 1)] * 2), self._chain([(queue, "", 1)])
        members = [(new[0], self._chain([(queue, "", 1)])), *((one, ()) for one in new[1:])]
        self.send_members(members, Target(f"g{next(self.ids)}", (then, on_dead), 0, closes=True))
        for verb in verbs:
            self._work(worker, verb)

    def _work(self, worker: Worker, verb: str) -> None:
        worker.pending += [(claim, OUTCOMES[verb]) for claim in worker.claims]
        worker.claims.clear()
        self.take_turn(worker, 6)
        self.move_clock(SECOND_US // 10)

    @invariant()
    def groups_match_the_model(self) -> None:
        """Check that each group ends exactly once, and that the task that follows it does not exist before that."""
        dependents, keys = self.model.places.dependents, self.fleet.keys
        living = {name: group for name, group in dependents.groups.items() if group.ended is None}
        pipe: Any = self.fleet.redis.pipeline(transaction=False)
        pipe.hgetall(keys.members).zrange(keys.groups, 0, -1)
        for name in dependents.groups:
            pipe.smembers(keys.group_members(name)).pttl(keys.group(name))
        members, groups, *rest = pipe.execute()
        assert members == dependents.member_texts()
        assert dependents.members.keys() <= self.model.places.tasks.keys()
        assert sorted(groups) == sorted(living)
        for group, left, ttl in zip(dependents.groups.values(), rest[::2], rest[1::2], strict=True):
            assert (left, ttl > 0) == (group.live, group.ended is not None)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def look_at_a_group(self, data: st.DataObject) -> None:
        """Compare the state of a group with the model. Check that `heal_members` finds no member whose end was
        overlooked.
        """
        assert self.fleet.run(self.fleet.store.heal_members("")) == HealedMembers("0", 0)
        name = self.pick(data, self.model.groups)
        group = self.model.groups[name]
        phase, is_cancelled = group.phase if group.ended is None else "ended", group.phase == "cancelled"
        numbers = group.total, len(group.live), group.cursor, group.opened
        ends = {how: group.ends[how] for how in ENDS}
        found = self.fleet.run(self.fleet.store.group(name))
        assert found is not None
        to_come = [
            chain[0].id if chain and phase in {"open", "closed"} else "" for chain in (group.then, group.on_dead)
        ]
        assert tuple(found) == (name, phase, is_cancelled, *numbers, group.ended, group.followed_by, *to_come, ends)
