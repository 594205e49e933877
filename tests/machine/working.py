"""Rules for workers, and for the master that acts on their behalf."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import (
    ANSWERED,
    CAPPED,
    COPIED,
    DELIVERIES,
    DROPPED,
    HOUR_MS,
    NAMES,
    PACKED,
    SERVINGS,
    Worker,
    bell_of,
    texts,
    texts_of,
)
from machine.polling import Polling
from model.claims import TurnRequest
from model.model import Outcome as ModelOutcome
from rota.protocol.entry import parse_entry
from rota.protocol.outcome import (
    DONE,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    Release,
    RetryOutcome,
    Settlement,
    plain_lines,
)
from rota.protocol.tiers import pack_limits
from rota.protocol.turns import Claim, TurnReply, TurnStatus
from support.protocol import LEASE_MS, RUN_RECORD, SECOND_US, pack_settlements, turn_of

OUTCOMES: dict[str, Outcome] = {
    "done": DONE,
    "done with a result": Done(b"42", HOUR_MS),
    "retry at once": RetryOutcome(0),
    "retry soon": RetryOutcome(2_000_000),
    "retry late": RetryOutcome(3_600_000_000),
    "retry with a record": RetryOutcome(0, b'{"reason":"failed"}'),
    "dead": DeadOutcome(b'{"reason":"raised"}'),
    "release": Release(),
    "cancelled": CancelledOutcome(),
    "expired": Expired(),
}
VERBS = st.sampled_from([*sorted(OUTCOMES), *["done"] * 4])
PICKS = st.sampled_from([1, 1, 2, 5, 50])
# The times in microseconds within which a turn may claim. With 0, it may claim at any time. With the other values, a
# delayed call may arrive too late to claim.
CLAIM_WITHIN_US = st.sampled_from([0, 1, SECOND_US, SECOND_US])
LIMITS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5), max_size=2)


def _has_its_own_line(told: tuple[Settlement, tuple[Claim, Outcome]]) -> bool:
    """Whether a turn sends this settlement on a line of its own. Tasks that are simply done are sent before these
    lines, as one compact list.
    """
    return not plain_lines(told[0])


def in_model(outcome: Outcome) -> ModelOutcome:
    delay, kept = 0, b""
    match outcome:
        case Done(result):
            kept = result
        case RetryOutcome(delay, record):
            kept = record
        case DeadOutcome(record):
            kept = record
    return type(outcome).__name__.removesuffix("Outcome").lower(), delay, kept.decode()


def modelled(reported: list[tuple[Claim, Outcome]]) -> list[tuple[str, ModelOutcome]]:
    return [(claim.entry.text.decode(), in_model(outcome)) for claim, outcome in reported]


class Working(Polling):
    """Rules in which workers register, claim and settle."""

    @precondition(lambda self: len(self.workers) < 3)
    @rule(pool=st.sampled_from(["all", "all", *SERVINGS]), delivery=DELIVERIES)
    def register(self, pool: str, delivery: str) -> None:
        """Register a worker. If the call arrives twice, it creates a second owner that no worker uses."""

        def check(names: tuple[str, ...]) -> None:
            assert list(names) == self.model.register(self.now, ["node:1"])
            self.named += names

        names = self.call(self.fleet.store.register(LEASE_MS, ["node:1"]), check, delivery)
        if names:
            self.workers[names[0]] = Worker(names[0], pool)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), limit=st.integers(0, 5), limits=LIMITS, picks=PICKS, delivery=DELIVERIES)
    def turn(self, data: st.DataObject, limit: int, limits: dict[str, int], picks: int, delivery: str) -> None:
        worker = self.workers[self.pick(data, self.workers)]
        # A worker that has just taken a token was idle, so it sends no pipelined turn.
        is_pipelined = not worker.tokens and data.draw(st.booleans())
        within_us = data.draw(CLAIM_WITHIN_US) if is_pipelined else None
        self.bring_if_few(data)
        claim_by = within_us and self.now + within_us
        for claim in list(worker.claims):
            if data.draw(st.booleans()):
                worker.claims.remove(claim)
                worker.pending.append((claim, OUTCOMES[data.draw(VERBS)]))
        self.take_turn(worker, limit, limits, delivery, picks, claim_by=claim_by)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), verbs=st.lists(VERBS, min_size=2, max_size=4), limit=st.integers(1, 6))
    def work(self, data: st.DataObject, verbs: list[str], limit: int) -> None:
        """Take some turns without faults, so that other rules find tasks that already have a history."""
        worker = self.workers[self.pick(data, self.workers)]
        for verb in verbs:
            self.bring_if_few(data)
            worker.pending += [(claim, OUTCOMES[verb]) for claim in worker.claims]
            worker.claims.clear()
            self.take_turn(worker, limit)

    def take_turn(
        self,
        worker: Worker,
        limit: int,
        limits: dict[str, int] | None = None,
        delivery: str = ANSWERED,
        picks: int = 1,
        *,
        claim_by: int | None = None,
    ) -> TurnReply | None:
        """Let a worker take a turn, which also sends again the outcomes that no reply has confirmed. With `claim_by`,
        the turn is like one that a worker sends before it has the previous reply: it claims nothing after this time,
        and does not list the tasks that the worker holds.
        """
        held = [claim.entry.id for claim in worker.claims] if claim_by is None else None
        settled = [Settlement(claim.entry, outcome, RUN_RECORD) for claim, outcome in worker.pending]
        reported = [one for _, one in sorted(zip(settled, worker.pending, strict=True), key=_has_its_own_line)]
        turn = turn_of(settled, limit, held, sorted(worker.tokens), pack_limits(limits or {}))
        quarantined = worker.quarantined.decode()
        request = TurnRequest(
            worker.owner,
            worker.serving,
            limit,
            limits or {},
            picks=picks,
            quarantined=quarantined,
            claim_by=claim_by or 0,
        )
        check = self._turn_check(request, held, reported)
        command = self.fleet.store.turn(
            worker.owner,
            PACKED[worker.pool],
            replace(turn, picks=picks, quarantined=worker.quarantined, claim_by_us=claim_by or 0),
        )
        reply = self.call(command, check, delivery, worker.owner)
        if reply:
            self._receive(worker, reply)
        return reply

    def _turn_check(
        self, request: TurnRequest, held: list[str] | None, reported: list[tuple[Claim, Outcome]]
    ) -> Callable[[TurnReply], None]:
        def check(reply: TurnReply) -> None:
            expected = self.model.turn(self.now, request, held, modelled(reported))
            claims = [(claim.entry.text.decode(), claim.body.decode()) for claim in reply.claims]
            assert (reply.status, texts(reply.stale)) == (expected.status, expected.stale)
            assert reply.quarantined.decode() == expected.quarantined
            assert (claims, texts_of(reply.dropped)) == (expected.claims, expected.dropped)
            assert (reply.wait_us, reply.now_us) == (expected.wait, self.now)
            if (
                expected.status == "lost"
            ):  # such a turn rings the doorbells of all its queues, even of queues whose tokens had been lost
                self.without_token -= {share.queue for tier in request.serving for share in tier}

        return check

    def _receive(self, worker: Worker, reply: TurnReply) -> None:
        worker.pending.clear()
        worker.tokens.clear()
        worker.claims += reply.claims
        worker.quarantined = reply.quarantined
        if reply.status is TurnStatus.LOST and worker.owner in self.workers:
            self.zombies.append(self.workers.pop(worker.owner))

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        """Let a worker that sleeps at its doorbells take a token. The worker reports the token in its next turn."""
        worker = self.workers[self.pick(data, self.workers)]
        self.swallow(worker, data.draw(st.sampled_from(worker.queues)))

    @precondition(lambda self: any(not worker.claims for worker in self.workers.values()))
    @rule(data=st.data(), limit=st.integers(1, 3))
    def wake_with_a_turn(self, data: st.DataObject, limit: int) -> None:
        """Let a worker send a turn directly behind a BLPOP, before it knows which token the BLPOP took. The following
        turn reports the token, unless the first turn claimed from the queue of the token or claimed nothing at all.
        """
        worker = self.workers[self.pick(data, [name for name, one in self.workers.items() if not one.claims])]
        self.bring_if_few(data)
        self.take_turn(worker, 0)
        queue = data.draw(st.sampled_from(worker.queues))
        if worker.claims or not self.fleet.redis.lpop(self.fleet.keys.doorbell(queue)):
            return
        self.take_turn(worker, limit)
        if worker.claims and bell_of(worker.claims[0].entry.queue) != queue:
            worker.tokens.add(queue)

    def swallow(self, worker: Worker, queue: str) -> None:
        if self.fleet.redis.lpop(self.fleet.keys.doorbell(queue)):
            worker.tokens.add(queue)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), verb=VERBS, finished=st.booleans(), delivery=DELIVERIES)
    def return_prefetched(self, data: st.DataObject, verb: str, finished: bool, delivery: str) -> None:
        """Let the master act while a worker runs a long task. The master settles the finished tasks of the claim, and
        returns the entries behind the long task. The worker notices this later, and sends the outcomes again.
        """
        worker = self.workers[self.pick(data, self.workers)]
        if len(worker.claims) < 3:
            self.bring_if_few(data)
            self.take_turn(worker, 5)
        if finished and len(worker.claims) > 1:
            worker.pending.append((worker.claims.pop(0), OUTCOMES[verb]))
        if worker.claims:
            running = data.draw(st.sampled_from([worker.claims[0], *worker.claims])).entry.text
            self.send_recall(worker, running, delivery)

    def send_recall(self, worker: Worker, running: bytes, delivery: str) -> None:
        reported = modelled(worker.pending)

        def check(returned: int) -> None:
            assert returned == self.model.return_prefetched(
                self.now, worker.owner, running.decode(), reported, worker.serving
            )

        settled = pack_settlements(Settlement(claim.entry, outcome, RUN_RECORD) for claim, outcome in worker.pending)
        command = self.fleet.store.return_prefetched(worker.owner, running, PACKED[worker.pool], settled)
        self.call(command, check, delivery, worker.owner)

    @precondition(lambda self: any(worker.claims for worker in self.workers.values()))
    @rule(data=st.data(), delivery=DELIVERIES)
    def mark_a_task_as_started(self, data: st.DataObject, delivery: str) -> None:
        """Let a worker set the start mark of a task that may be started at most once. If the worker receives no reply,
        it does not start the task.
        """
        worker = self.workers[self.pick(data, [name for name, one in self.workers.items() if one.claims])]
        at = data.draw(st.integers(0, len(worker.claims) - 1))
        entry, body = worker.claims[at]

        def check(marked: bytes) -> None:
            assert marked.decode() == self.model.mark_started(worker.owner, entry.text.decode())

        marked = self.call(self.fleet.store.mark_started(worker.owner, entry.text), check, delivery, worker.owner)
        if marked:
            worker.claims[at] = Claim(parse_entry(marked), body)

    # Rules for situations that random steps reach too rarely

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def swallow_a_token_after_a_lost_answer(self, data: st.DataObject) -> None:
        """Lose the reply to a claim. The next turn gets the status `again`, and must nevertheless pass on the tokens
        that it reports. Random steps rarely reach this situation.
        """
        worker = self.workers[self.pick(data, self.workers)]
        self.bring_if_few(data)
        self.take_turn(worker, 1, delivery=DROPPED)
        for queue in worker.queues:
            self.swallow(worker, queue)
        self.take_turn(worker, 1)

    @precondition(lambda self: any(worker.claims for worker in self.workers.values()))
    @rule(data=st.data())
    def release_and_claim_again(self, data: st.DataObject) -> None:
        """Deliver a release again after its owner has claimed the same task again. The second delivery must change
        nothing. Random steps rarely reach this situation.
        """
        worker = self.workers[self.pick(data, [name for name, one in self.workers.items() if one.claims])]
        worker.pending.append((worker.claims.pop(0), Release()))
        self.take_turn(worker, 0, delivery=COPIED)
        if worker.owner in self.workers:
            self.take_turn(worker, 4)
        self.deliver(self.in_transit.pop())

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), queue=st.sampled_from([CAPPED.queue, "t-a"]))
    def make_room_under_a_cap(self, data: st.DataObject, queue: str) -> None:
        """Let a worker take a token while the cap is reached. The turn that makes room under the cap must ring the
        doorbell, although it claims nothing. Random steps rarely reach this situation.
        """
        worker = self.workers[self.pick(data, self.workers)]
        self.bring(queue, 4)
        for _ in range(3):
            self.take_turn(worker, 1)
        if bell_of(queue) in worker.queues:
            self.swallow(worker, bell_of(queue))
        self.take_turn(worker, 0)
        worker.pending += [(claim, DONE) for claim in worker.claims]
        worker.claims.clear()
        self.take_turn(worker, 0)
