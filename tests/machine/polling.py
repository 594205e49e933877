"""Rules for pollers."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from machine.base import ANSWERED, DELIVERIES, PATTERN_OF, SECOND_US, bell_of
from machine.producing import Producing
from model.items import LegacyItem
from rota.protocol.replies import AdoptedScheduled, Promoted, Swept
from support.protocol import LEASE_MS

FORGET_SECONDS = 30
"""The time after which an empty queue of a pattern is forgotten."""


class Polling(Producing):
    """Rules in which pollers promote, sweep and adopt."""

    @rule(limit=st.sampled_from([1, 2, 500, 500]), delivery=DELIVERIES)
    def promote(self, limit: int, delivery: str) -> None:
        self.send_promote(limit, delivery)

    def send_promote(self, limit: int = 500, delivery: str = ANSWERED) -> None:
        """Promote due tasks, as a poller does when it is woken by its doorbell or its timer."""

        def check(reply: Promoted) -> None:
            expected = self.model.promote(self.now, limit)
            assert (reply.moved, reply.buried) == (expected.moved, expected.buried)
            assert (reply.next_due_us, reply.more) == (expected.next_due, expected.more)
            assert list(reply.left_out) == expected.left_out

        self.fleet.redis.delete(self.fleet.keys.poller_doorbell)
        reply = self.call(self.fleet.store.promote(limit), check, delivery)
        self._poller_learns(reply.next_due_us if reply else 0)

    @rule(delivery=DELIVERIES)
    def sweep(self, delivery: str) -> None:
        self.send_sweep(delivery)

    def send_sweep(self, delivery: str = ANSWERED) -> tuple[str, ...]:
        """Sweep, and return the expired owners. Check that the sweep rings the doorbells of those queues that have
        entries but no token.
        """
        known = set(self.model.places.known)
        entries = {queue: len(self.model.places.entries(queue)) for queue in known}
        bells = self.picture().bells
        waiting = [queue for queue in entries if entries[queue] and not bells[bell_of(queue)]]
        may_be_full = {queue for queue in waiting if self.model.may_be_full(queue, self.now)}

        def check(reply: Swept) -> None:
            assert list(reply.expired) == self.model.sweep(self.now, FORGET_SECONDS * SECOND_US)
            assert reply.grace_until_us == self.model.leases.grace_until
            assert reply.next_due_us == self.model.next_due()
            assert reply.legacy_items == self.model.legacy_items()

        reply = self.call(self.fleet.store.sweep(LEASE_MS, forget_seconds=FORGET_SECONDS), check, delivery)
        if not reply:
            self._poller_learns(0)
            return ()
        if delivery == ANSWERED:
            paused, is_closed = self.model.paused, self.model.is_closed_for_sweeps
            unrung = {queue for queue in waiting if queue not in paused and not is_closed(queue)}
            rescued = {bell_of(queue) for queue in unrung - may_be_full}
            # The queues of a pattern share one doorbell. If a cap or a rate may close one of these queues, the order of
            # the queues decides whether the sweep counts a rescue.
            surely = rescued - {bell_of(queue) for queue in unrung & may_be_full}
            assert len(surely) <= reply.rescues <= len(rescued)
        self._poller_learns(reply.next_due_us)
        # A sweep does not know a queue that belongs to a pattern and has only received items from other programs.
        self.without_token &= PATTERN_OF.keys() - known
        return reply.expired

    @rule(data=st.data(), delivery=DELIVERIES)
    def adopt_scheduled(self, data: st.DataObject, delivery: str) -> None:
        """Adopt the legacy items of the delayed set, as a poller does. The call may also name members that are already
        tasks or that do not exist.
        """
        scheduled = self.model.places.scheduled
        bare = [member for member, (_, item) in scheduled.items() if isinstance(item, LegacyItem)]
        members = [*bare, data.draw(st.sampled_from([*scheduled, "[gone]"]))]

        def check(reply: AdoptedScheduled) -> None:
            adopted, dead = self.model.adopt_scheduled(self.now, members)
            assert reply == AdoptedScheduled(adopted, tuple((queue, "garbage") for queue in dead))

        self.call(self.fleet.store.adopt_scheduled([member.encode() for member in members]), check, delivery)

    def _poller_learns(self, next_due: int | None) -> None:
        """Store the time at which the poller checks again. If there was no reply, the time is 0, because the poller
        then checks again at once.
        """
        self.poller_knows = next_due
        self.bare_is_unseen = False
