"""The real scripts on a real server against the model, driven at random: lost, late and repeated calls, crashes,
lost nodes, an emptied script cache. After each step everything stands where the model says."""

import itertools
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from model import Model, ModelTask
from protocol import LEASE_MS, Fleet, body_of, tiers
from rota.protocol.outcome import Cancelled, Dead, Done, Expired, Outcome, Release, Retry
from rota.protocol.replies import Claim, TurnReply, TurnWord
from rota.protocol.store import Blame, NewTask, QueueShare
from servers import Server

FAR_US = 3_600_000_000
TIERS = (("high",), ("x", "y"))
SERVING = tiers([QueueShare("high")], [QueueShare("x", weight=3), QueueShare("y")])
QUEUES = [queue for tier in TIERS for queue in tier]
OUTCOMES: dict[str, Outcome] = {
    "done": Done(),
    "retry": Retry(FAR_US),
    "dead": Dead(b'{"reason":"raised"}'),
    "release": Release(),
    "cancelled": Cancelled(),
    "expired": Expired(),
}
_examples = itertools.count()


class Protocol(RuleBasedStateMachine):
    """One example: a fresh namespace, three places for owners."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(self.server, f"model-{next(_examples)}")
        self.model = Model(TIERS)
        self.known: dict[str, list[Claim]] = {}
        self.retired: list[tuple[str, list[Claim]]] = []
        self.ids = itertools.count()

    def teardown(self) -> None:
        self.fleet.close()

    # Producing

    @rule(
        queue=st.sampled_from(QUEUES),
        scheduled=st.booleans(),
        key=st.sampled_from(["", "", "k1", "k2"]),
        again=st.booleans(),
        old=st.booleans(),
    )
    def enqueue(self, queue: str, scheduled: bool, key: str, again: bool, old: bool) -> None:
        live = list(self.model.tasks)
        task_id = live[0] if old and live else f"t{next(self.ids)}"
        new = NewTask(task_id, queue, body_of(task_id, queue), f"+{FAR_US}" if scheduled else "", key)
        call = self.fleet.store.enqueue(f"{self.fleet.keys.namespace}-{task_id}-{next(self.ids)}", [new])
        answer = self.fleet.run(call)[0]
        if again:
            assert self.fleet.run(call)[0] == answer
        word = self.model.enqueue(ModelTask(task_id, queue, unique_key=key), scheduled=scheduled)
        assert (answer.duplicate, answer.holder) == (word != "ok", word.partition(" ")[2])

    @rule(queue=st.sampled_from(QUEUES), number=st.integers(2, 6))
    def enqueue_many(self, queue: str, number: int) -> None:
        """Most of the load: without it the rules that need tasks find none."""
        ids = [f"t{next(self.ids)}" for _ in range(number)]
        self.fleet.push(*ids, queue=queue)
        for task_id in ids:
            self.model.enqueue(ModelTask(task_id, queue), scheduled=False)

    @precondition(lambda self: self.model.scheduled)
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        """Some scheduled tasks fall due, in the order drawn, and a poller promotes them."""
        due = data.draw(st.permutations(sorted(self.model.scheduled)))[:3]
        self.fleet.redis.zadd(self.fleet.keys.delayed, {task_id: 1 + at for at, task_id in enumerate(due)}, xx=True)
        assert sum(self.fleet.promote().moved.values()) == len(due)
        self.fleet.promote()
        self.model.promote(due)

    # Working

    @precondition(lambda self: len(self.known) < 3)
    @rule()
    def register(self) -> None:
        owner = self.fleet.register()
        self.known[owner] = []
        self.model.inflight[owner] = []

    @precondition(lambda self: self.known)
    @rule(data=st.data(), limit=st.integers(0, 4), lost=st.booleans(), twice=st.booleans())
    def turn(self, data: st.DataObject, limit: int, lost: bool, twice: bool) -> None:
        owner = data.draw(st.sampled_from(sorted(self.known)))
        settled = [
            (claim, data.draw(st.sampled_from(sorted(OUTCOMES))))
            for claim in self.known[owner]
            if data.draw(st.booleans())
        ]
        held = [claim for claim in self.known[owner] if claim not in [one for one, _ in settled]]
        reply = self._send(owner, settled, held, limit)
        self._check(owner, settled, held, limit, reply)
        self.known[owner] = held if lost else [*held, *reply.claims]
        if twice:
            repeated = self._send(owner, settled, held, 0)
            assert len(repeated.stale) == len(settled)
            unnamed = [claim.entry.id for claim in repeated.claims]
            assert unnamed == [one for one in self.model.inflight[owner] if one not in ids_of(held)]

    def _send(self, owner: str, settled: list[tuple[Claim, str]], held: list[Claim], limit: int) -> TurnReply:
        outcomes = ((claim, OUTCOMES[verb]) for claim, verb in settled)
        return self.fleet.turn(owner, SERVING, *outcomes, limit=limit, held=ids_of(held))

    def _check(
        self, owner: str, settled: list[tuple[Claim, str]], held: list[Claim], limit: int, reply: TurnReply
    ) -> None:
        for claim, verb in settled:
            assert self.model.settle(owner, claim.entry.id, verb)
        assert reply.stale == ()
        unnamed = [one for one in self.model.inflight[owner] if one not in ids_of(held)]
        if unnamed:
            assert (reply.word, ids_of(list(reply.claims))) == (TurnWord.AGAIN, unnamed)
            return
        assert reply.word is TurnWord.OK
        if limit:
            self._check_claims(owner, limit, reply)

    def _check_claims(self, owner: str, limit: int, reply: TurnReply) -> None:
        holding = bool(self.model.inflight[owner])
        if self.model.holds_suspicious(owner):
            assert (reply.claims, reply.dropped) == ((), ())
            return
        served = [claim.entry.queue for claim in reply.claims][:1]
        dropping = [entry.queue for entry in reply.dropped if entry.queue not in served]
        for queue in dict.fromkeys(dropping):
            taken, dropped = self.model.take(queue, limit, holding=holding)
            assert (taken, dropped) == ([], [entry.id for entry in reply.dropped if entry.queue == queue])
        for queue in served:
            assert queue not in self.model.paused
            taken, dropped = self.model.take(queue, limit, holding=holding)
            assert taken == ids_of(list(reply.claims))
            assert dropped == [entry.id for entry in reply.dropped if entry.queue == queue]
            self.model.inflight[owner] += taken
        # Strict: what stands above the queue that was served has nothing that may be served.
        above = itertools.takewhile(lambda tier: not set(served) & set(tier), TIERS)
        for queue in itertools.chain.from_iterable(above):
            assert not self.model.may_be_served(queue, holding=holding)

    # Claims held up

    @precondition(lambda self: any(self.known.values()))
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        """The master gives back what stands behind a task that runs for long; the worker hears of it later."""
        owner = data.draw(st.sampled_from(sorted(name for name, claims in self.known.items() if claims)))
        running = data.draw(st.sampled_from(self.known[owner])).entry
        recalled = self.fleet.run(self.fleet.store.recall(owner, running.text, SERVING))
        assert recalled == self.model.recall(owner, running.id)
        self.known[owner] = [claim for claim in self.known[owner] if claim.entry.id in self.model.inflight[owner]]

    @precondition(lambda self: self.retired)
    @rule(data=st.data())
    def recall_too_late(self, data: st.DataObject) -> None:
        """A recall that arrives after the worker was retired finds nothing."""
        owner, claims = data.draw(st.sampled_from(self.retired))
        for claim in claims:
            assert self.fleet.run(self.fleet.store.recall(owner, claim.entry.text, SERVING)) == 0

    # Dying

    @precondition(lambda self: self.known)
    @rule(data=st.data(), finished=st.booleans(), ran=st.booleans())
    def crash(self, data: st.DataObject, finished: bool, ran: bool) -> None:
        """A worker dies: what it had finished is settled, what ran is charged."""
        owner = data.draw(st.sampled_from(sorted(self.known)))
        claims = self.known.pop(owner)
        outcomes = [(claims[0], Done())] if finished and claims else []
        guilty = [claim.entry.id for claim in claims[len(outcomes) :][:1]] if ran else []
        self.fleet.retire(owner, guilty, *outcomes)
        for claim, _ in outcomes:
            assert self.model.settle(owner, claim.entry.id, "done")
        self.model.retire(owner, "exit", guilty)
        self.retired.append((owner, claims))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def node_lost(self, data: st.DataObject) -> None:
        """Nobody renews: a poller finds the lease run out and retires the owner."""
        owner = data.draw(st.sampled_from(sorted(self.known)))
        self.fleet.expire_lease(owner)
        assert owner in self.fleet.run(self.fleet.store.sweep(LEASE_MS)).expired
        assert not self.fleet.run(self.fleet.store.retire_expired(owner, Blame())).alive
        self.model.retire(owner, "expired", [])
        self.retired.append((owner, self.known.pop(owner)))

    @precondition(lambda self: self.retired)
    @rule(data=st.data(), verb=st.sampled_from(sorted(OUTCOMES)), limit=st.integers(0, 2))
    def zombie(self, data: st.DataObject, verb: str, limit: int) -> None:
        """A call that arrives after its owner was retired has no effect."""
        owner, claims = data.draw(st.sampled_from(self.retired))
        reply = self._send(owner, [(claim, verb) for claim in claims], [], limit)
        assert (reply.word, len(reply.stale), reply.claims) == (TurnWord.LOST, len(claims), ())

    # People and the server

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.model.tasks)))
        assert self.fleet.run(self.fleet.store.cancel(task_id)) == self.model.cancel(task_id)

    @precondition(lambda self: not self.model.paused)
    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        assert self.fleet.run(self.fleet.store.pause(queue)) == (queue not in self.model.paused)
        self.model.paused.add(queue)

    @precondition(lambda self: self.model.paused)
    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        assert self.fleet.run(self.fleet.store.resume(queue)) == (queue in self.model.paused)
        self.model.paused.discard(queue)

    @precondition(lambda self: len(self.model.tasks) > 20)
    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue: str) -> None:
        assert self.fleet.run(self.fleet.store.purge(queue)).count == self.model.purge(queue)

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.model.dead)))
        assert self.fleet.run(self.fleet.store.revive([task_id])) == 1
        self.model.revive(task_id)

    @rule()
    def script_cache_is_emptied(self) -> None:
        self.fleet.redis.script_flush()

    # What must hold after each step

    @invariant()
    def everything_stands_where_the_model_says(self) -> None:
        keys, model = self.fleet.keys, self.model
        for queue in QUEUES:
            assert self.fleet.lane(queue) == model.lane(queue, "ready")
            assert self.fleet.delayed_lane(queue) == model.lane(queue, "delayed")
        for owner, held in model.inflight.items():
            assert self.fleet.inflight(owner) == held
        assert set(self.fleet.redis.zrange(keys.delayed, 0, -1)) == set(model.scheduled)
        assert set(self.fleet.redis.zrange(keys.dead, 0, -1)) == model.dead
        assert set(self.fleet.redis.hkeys(keys.tasks)) == set(model.tasks)
        assert set(self.fleet.redis.hkeys(keys.tickets)) == set(model.scheduled) | model.dead

    @invariant()
    def the_books_balance(self) -> None:
        audit = self.fleet.run(self.fleet.store.audit())
        assert audit.missing == 0
        assert audit.accepted == self.model.accepted
        ended = {"done": audit.done, "cancelled": audit.cancelled, "expired": audit.expired, "purged": audit.purged}
        assert {how: number for how, number in ended.items() if number} == self.model.ended

    @invariant()
    def in_flight_lists_belong_to_registered_owners(self) -> None:
        owners = set(self.fleet.redis.zrange(self.fleet.keys.owners, 0, -1))
        assert owners == set(self.model.inflight)
        for owner, _ in self.retired:
            assert not self.fleet.redis.exists(self.fleet.keys.inflight(owner))

    @invariant()
    def a_unique_key_is_held_by_its_live_task(self) -> None:
        held = {key: self.fleet.redis.get(self.fleet.keys.unique(key)) for key in ("k1", "k2")}
        assert {key: holder for key, holder in held.items() if holder} == self.model.holders


def ids_of(claims: list[Claim]) -> list[str]:
    return [claim.entry.id for claim in claims]


def test_the_scripts_do_what_the_model_does(server: Server) -> None:
    machine: Any = type("Protocol", (Protocol,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
