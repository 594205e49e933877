"""Rules for deaths: crashes, lost nodes, and calls that arrive after the end of their owner."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from machine.base import ANSWERED, DELIVERIES, LATE, LEASE_US, PACKED, Worker, texts, texts_of
from machine.working import OUTCOMES, VERBS, Working, modelled
from model.results import Reaped as ModelReaped
from rota.protocol.entry import CrashKind
from rota.protocol.outcome import Settlement
from rota.protocol.replies import Reaped, Renewed
from rota.protocol.store import Blame
from support.protocol import LEASE_MS, RUN_RECORD, pack_settlements


class Dying(Working):
    """Rules that end owners. Calls that an owner sent before its end may still arrive later."""

    @precondition(lambda self: self.workers)
    @rule(
        data=st.data(),
        finished=st.booleans(),
        ran=st.sampled_from([0, 1, 1, 3]),
        innocent=st.integers(0, 2),
        delivery=DELIVERIES,
    )
    def crash(self, data: st.DataObject, finished: bool, ran: int, innocent: int, delivery: str) -> None:
        """Kill a worker, and have the master reap it. The reap settles the outcomes in the slot. It counts a crash for
        each running task, except for tasks that are known not to have caused the crash. If several tasks were running,
        none of them becomes dead.
        """
        worker = self.workers.pop(self.pick(data, self.workers))
        if finished and worker.claims:
            worker.pending.append((worker.claims.pop(0), OUTCOMES[data.draw(VERBS)]))
        guilty = [claim.entry.id for claim in worker.claims[:ran]]
        others = [claim.entry.id for claim in worker.claims[ran : ran + innocent]]
        self.without_token |= worker.tokens if delivery == LATE else set()
        self.send_reap_exited(worker, guilty, delivery, others)
        self.keep_as_zombie(worker)

    @rule(data=st.data(), how=st.sampled_from(["crash", "crash", "loss"]))
    def poison(self, data: st.DataObject, how: str) -> None:
        """Let the worker of a task die each time the task runs. The task must become dead after three crashes, or after
        five losses. Random steps rarely reach this situation.
        """
        self.bring_if_few(data)
        for _ in range(3 if how == "crash" else 5):
            owner = self.fleet.register()
            self.named += self.model.register(self.now, ["node:1"])
            worker = Worker(owner, "all")
            self.take_turn(worker, 1)
            if how == "loss":
                self._let_expire(owner)
                self.send_reap_expired(owner, ANSWERED)
            else:
                self.send_reap_exited(worker, [claim.entry.id for claim in worker.claims], ANSWERED)

    def send_reap_exited(self, worker: Worker, guilty: list[str], delivery: str, innocent: Sequence[str] = ()) -> None:
        settled = pack_settlements(Settlement(claim.entry, outcome, RUN_RECORD) for claim, outcome in worker.pending)
        ran = dict.fromkeys(guilty, f'{{"reason":"crashed","at":{self.now}}}') | dict.fromkeys(innocent, "")
        blame = Blame(ran=tuple((task_id, record.encode()) for task_id, record in ran.items()), crash=CrashKind.OOM)
        reported = modelled(worker.pending)

        def check(reply: Reaped) -> None:
            self._compare(reply, self.model.reap_exited(self.now, worker.owner, ran, reported, worker.serving))
            self.reaped.add(worker.owner)

        command = self.fleet.store.reap_exited(worker.owner, blame, settled, PACKED[worker.pool])
        self.call(command, check, delivery, worker.owner)

    def _compare(self, reply: Reaped, expected: ModelReaped) -> None:
        assert (reply.alive, reply.settled) == (expected.alive, expected.settled)
        assert (texts_of(reply.requeued), texts_of(reply.dead)) == (expected.requeued, expected.dead)
        assert texts(reply.stale) == expected.stale

    def keep_as_zombie(self, worker: Worker) -> None:
        self.zombies = [*self.zombies[-3:], worker]

    @precondition(lambda self: self.model.leases.expires)
    @rule(data=st.data(), how=st.sampled_from(["late", "late", "renewed", "grace"]), delivery=DELIVERIES)
    def lease_runs_out(self, data: st.DataObject, how: str, delivery: str) -> None:
        """Let a poller try to reap an owner. The reap succeeds only if the lease has expired without being renewed and
        there is no grace period.
        """
        owner = self.pick(data, self.model.leases.expires)
        match how:
            case "late":
                self._let_expire(owner)
            case "renewed":
                self.send_renew([owner])
            case _:
                self.move_clock(2 * LEASE_US)
                self.send_sweep()
        assert self.model.leases.may_be_reaped(owner, self.now) == (how == "late")
        self.send_reap_expired(owner, delivery)
        if how == "late" and owner in self.workers:
            self.without_token |= self.workers[owner].tokens
            self.keep_as_zombie(self.workers.pop(owner))

    def _let_expire(self, owner: str) -> None:
        """Let time pass while all leases are renewed except the lease of this owner. Within the time of three leases,
        which includes the grace period, a sweep must return the owner as expired.
        """
        others = [name for name in self.model.leases.expires if name != owner]
        for _ in range(7):
            self.move_clock(LEASE_US * 9 // 20)
            self.send_renew(others)
            if owner in self.send_sweep():
                return
        raise AssertionError(f"{owner} never expired")

    def send_reap_expired(self, owner: str, delivery: str) -> None:
        def check(reply: Reaped) -> None:
            expected = self.model.reap_expired(self.now, owner)
            self._compare(reply, expected)
            if not expected.alive:
                self.reaped.add(owner)

        self.call(self.fleet.store.reap_expired(owner, Blame()), check, delivery, owner)

    def send_renew(self, owners: list[str], delivery: str = ANSWERED) -> None:
        def check(reply: Renewed) -> None:
            lost, cancelled = self.model.renew(self.now, owners)
            assert (list(reply.lost), set(texts(reply.cancelled))) == (lost, cancelled)

        self.call(self.fleet.store.renew(LEASE_MS, owners), check, delivery)

    # After death

    @precondition(lambda self: self.zombies)
    @rule(
        data=st.data(), verb=VERBS, limit=st.integers(0, 2), act=st.sampled_from(["turn", "return_prefetched", "reap"])
    )
    def zombie(self, data: st.DataObject, verb: str, limit: int, act: str) -> None:
        """After an owner has been reaped, deliver a call that the owner made, or that the master made on its behalf."""
        worker = data.draw(st.sampled_from(self.zombies))
        match act:
            case "turn":
                worker.pending += [(claim, OUTCOMES[verb]) for claim in worker.claims]
                worker.claims = []
                self.take_turn(worker, limit)
            case "return_prefetched":
                for claim in worker.claims:
                    self.send_recall(worker, claim.entry.text, ANSWERED)
            case _:
                self.send_reap_exited(worker, [], ANSWERED)

    @precondition(lambda self: self.in_transit)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """Deliver a delayed call. The model predicts the effect of the call, regardless of what has happened to the
        sender in the meantime.
        """
        at = data.draw(st.integers(0, len(self.in_transit) - 1))
        self.deliver(self.in_transit.pop(at))
