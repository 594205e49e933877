"""The model of a poller's sweep: what it corrects, returns and deletes."""

from model.steering import Steering
from model.turns import share_in

RECOUNT_US = 10_000_000
SOON_US = 1_000_000


class Sweeping(Steering):
    """The part of the model that sweeps all known queues and the owners."""

    def sweep(self, now: int, forget_after_us: int) -> list[str]:
        """Sweep, and return the owners whose lease has expired."""
        self.places.at(now)
        for queue in sorted(self.places.known):
            self._look_at_known(queue)
            self._look_whether_idle(queue, forget_after_us)
        pulse = self.leases.pulse
        if pulse is None or now // RECOUNT_US != pulse // RECOUNT_US:
            self.places.recount_running(self.leases.expires)
        return self.leases.sweep(now)

    def _look_at_known(self, queue: str) -> None:
        if self.places.entries(queue):
            self.places.marked.add(queue)
            if not self.is_closed_for_sweeps(queue) or self._opens_soon(queue):
                self.places.look_at(queue)

    def is_closed_for_sweeps(self, queue: str) -> bool:
        """Whether the queue is closed in such a way that a sweep need not wake a worker for it. Workers check
        conditions again by themselves.
        """
        return bool(self.conditions.defined) and self.closed_by(queue)[0] is not None

    def _opens_soon(self, queue: str) -> bool:
        """Whether the queue's condition opens before the next sweep. If it does, this sweep must wake a worker, because
        nothing else notices an item that was pushed without the client.
        """
        name = self._condition_of(queue)
        return bool(name) and queue not in self.paused and self.conditions.verdict(queue, name).after < SOON_US

    def may_be_full(self, queue: str, now: int) -> bool:
        """Whether a cap or a rate may prevent a start. In that case, it is correct if the queue has no token."""
        return self.places.counts[f"running:{queue}"] > 0 or self.rates.paid_off.get(queue, 0) > now

    # Queues that are known only through a pattern

    def _look_whether_idle(self, queue: str, forget_after_us: int) -> None:
        """Record when a queue became empty. Forget the queue when it has been empty for `forget_after_us`."""
        pattern = self._pattern_of(queue)
        if not pattern or not self._is_empty(queue):
            self.places.idle.pop(queue, None)
            return
        since = self.places.idle.get(queue)
        if since is None or since > self.places.now:
            self.places.idle[queue] = self.places.now
        elif self.places.now - since >= forget_after_us:
            self._forget_queue(queue, pattern)

    def _pattern_of(self, queue: str) -> str:
        shares = [share for turns in self.places.turns if (share := share_in(turns.tier, queue))]
        is_named = any(not share.pattern for share in shares) or self.served.get(queue, 0) > self.places.now
        return "" if is_named or not shares else shares[0].pattern

    def _is_empty(self, queue: str) -> bool:
        """Whether the queue has no waiting, running, delayed or dead task, is not held back by a rate, and is not
        paused either.
        """
        counts = [self.places.counts[f"{place}:{queue}"] for place in ("running", "delayed", "dead")]
        is_held_back = self.rates.paid_off.get(queue, 0) > self.places.now
        return not (self.places.entries(queue) or queue in self.paused or any(counts) or is_held_back)

    def _forget_queue(self, queue: str, pattern: str) -> None:
        """Forget a queue. Its number of accepted tasks is added to the number of its pattern."""
        places = self.places
        if queue in places.accepted:
            places.accepted[pattern] += places.accepted.pop(queue)
        for turns in places.turns:
            turns.forget(queue, self.rotation)
        self.rates.paid_off.pop(queue, None)
        places.marked.discard(queue)
        places.known.discard(queue)
        places.idle.pop(queue, None)
