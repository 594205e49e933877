"""Rules for queues that open, close, appear and disappear. Each rule aims at a situation that random steps rarely
reach.
"""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import ALWAYS, FAST, FEW, PATTERN_OF, SECOND_US, SHARES, Worker
from machine.dying import Dying
from machine.polling import FORGET_SECONDS
from model.conditions import Hours, Rule
from rota.protocol.outcome import DONE
from rota.protocol.turns import TurnReply

MOST_TURNS = 12
NEVER = Rule("return false", lambda _: False)
CROWDED = Rule("return ready < 2", lambda seen: seen.ready < 2)
BROKEN = Rule("return ready + nil", lambda _: None)


class Opening(Dying):
    """Rules in which workers run every task that may be claimed, while queues open, close, appear and disappear."""

    def empty_what_is_open(self, worker: Worker) -> TurnReply | None:
        """Take turns until a turn claims nothing, and return the reply of that last turn."""
        reply = None
        for _ in range(MOST_TURNS):
            worker.pending += [(claim, DONE) for claim in worker.claims]
            worker.claims.clear()
            reply = self.take_turn(worker, 6)
            if not reply or not reply.claims:
                break
        return reply

    @precondition(lambda self: self.workers)
    @rule(
        data=st.data(),
        queue=st.sampled_from([queue for queue, share in SHARES.items() if share.condition]),
        shut=st.sampled_from([NEVER, CROWDED, BROKEN]),
    )
    def a_condition_closes_and_opens(self, data: st.DataObject, queue: str, shut: Rule) -> None:
        """Let a condition close a queue and open it later. A worker that finds the queue closed receives the time at
        which it must check again.
        """
        worker = self.workers[self.pick(data, self.workers)]
        opens_at = self.now + 2 * SECOND_US
        hours = Hours(self.now + 60 * SECOND_US, ((opens_at, self.now + 60 * SECOND_US),))
        self.define({FAST.condition: hours, FEW.condition: shut})
        self.bring(queue, 2)
        reply = self.empty_what_is_open(worker)
        self.define({FEW.condition: ALWAYS})
        self.move_clock(reply.wait_us if reply else SECOND_US)
        self.empty_what_is_open(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), queue=st.sampled_from(sorted(PATTERN_OF)))
    def a_tenant_comes_and_goes(self, data: st.DataObject, queue: str) -> None:
        """Let a queue that belongs to a pattern stay empty until it is forgotten. When the queue gets tasks again, it
        starts like a new queue.
        """
        worker = self.workers[self.pick(data, self.workers)]
        self.bring(queue, 2)
        self.empty_what_is_open(worker)
        for _ in range(2):
            self.send_sweep()
            self.move_clock(FORGET_SECONDS * SECOND_US)
            self.send_renew(list(self.workers))
        self.bring(queue, 1)
