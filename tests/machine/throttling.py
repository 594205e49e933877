"""Rules for tasks with their own rate."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import DELIVERIES, RATES_OF_TASKS, Worker
from machine.working import Working
from rota.protocol.outcome import Expired
from rota.protocol.turns import Claim, Throttled, ThrottleStatus

PATIENCE = st.sampled_from([None, None, 0, 1_500_000])
"""The longest time from the request of a start to the start, in microseconds. None means no limit."""


class Throttling(Working):
    """Rules for tasks with their own rate. Before a worker starts such a task, it requests permission from Redis."""

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), name=st.sampled_from(sorted(RATES_OF_TASKS)), patience=PATIENCE, delivery=DELIVERIES)
    def throttle(self, data: st.DataObject, name: str, patience: int | None, delivery: str) -> None:
        """Let a worker request permission to start tasks that have their own rate."""
        worker = self.workers[self.pick(data, self.workers)]
        if not worker.claims:
            self.bring_if_few(data)
            self.take_turn(worker, 4)
        for _ in range(min(2, len(worker.claims))):
            self.send_throttle(worker, data.draw(st.sampled_from(worker.claims)), name, patience, delivery)

    def send_throttle(self, worker: Worker, claim: Claim, name: str, patience: int | None, delivery: str) -> None:
        latest = None if patience is None else self.now + patience
        asked = RATES_OF_TASKS[name]._replace(entry=claim.entry.text, latest_us=latest)
        rate = asked.name, asked.interval_us, asked.burst

        def check(reply: Throttled) -> None:
            expected = self.model.throttle(self.now, worker.owner, claim.entry.text.decode(), rate, latest)
            assert reply == expected

        reply = self.call(self.fleet.store.throttle(worker.owner, asked), check, delivery, worker.owner)
        if reply and reply.status in {ThrottleStatus.THROTTLED, ThrottleStatus.LATE}:
            worker.claims.remove(claim)
        if reply and reply.status is ThrottleStatus.LATE:
            worker.pending.append((claim, Expired()))
