"""Rules for faults of the server and its environment."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from machine.base import DELIVERIES, HOLD_MS, LEASE_US, NAMES, QUEUES, SECOND_US, UNIQUE_KEYS
from machine.dying import Dying
from machine.people import People
from model.items import New
from support.protocol import LEASE_MS

STEPS = st.sampled_from([0.001, 0.4, 1, 1, 3, 9, 31, 61])
JUMPS = st.sampled_from([25, 180, 3600, -1, -45, -3600])
ACTS = st.sampled_from(
    [
        "script_cache_is_emptied",
        "memory_runs_out_or_is_back",
        "a_bell_is_lost",
        "a_key_held_for_a_time_passes_on",
        "orphans_are_adopted",
    ]
    * 2
    + ["an_owner_is_forgotten"]
)


class Faults(Dying, People):
    """Rules for faults: the clock jumps, the server's memory becomes full, and keys and cached scripts are lost."""

    @rule(seconds=STEPS, is_renewed=st.booleans(), delivery=DELIVERIES)
    def time_passes(self, seconds: float, is_renewed: bool, delivery: str) -> None:
        self.move_clock(round(seconds * SECOND_US))
        if is_renewed:
            self.send_renew([*self.workers, *[worker.owner for worker in self.zombies[-1:]]], delivery)

    @rule(seconds=JUMPS, is_swept=st.booleans())
    def clock_jumps(self, seconds: int, is_swept: bool) -> None:
        """Let the server's clock jump. No lease may expire because of the jump, since no owner had time to renew its
        lease in between.
        """
        if is_swept:
            self.send_sweep()
        self.move_clock(seconds * SECOND_US)
        if seconds < 0:
            self.model.clock_went_back()
        if is_swept:
            assert self.send_sweep() == ()
            assert max(self.model.leases.expires.values(), default=0) <= self.now + 2 * LEASE_US

    @rule(data=st.data(), act=ACTS, delivery=DELIVERIES)
    def faults(self, data: st.DataObject, act: str, delivery: str) -> None:
        """Cause one fault. All faults share this rule, because they would otherwise take up too many of the random
        steps.
        """
        {
            "script_cache_is_emptied": self.script_cache_is_emptied,
            "memory_runs_out_or_is_back": self.memory_runs_out_or_is_back,
            "a_bell_is_lost": self.a_bell_is_lost,
            "a_key_held_for_a_time_passes_on": self.a_key_held_for_a_time_passes_on,
            "an_owner_is_forgotten": self.an_owner_is_forgotten,
            "orphans_are_adopted": self.orphans_are_adopted,
        }[act](data, delivery)

    def script_cache_is_emptied(self, _: st.DataObject, __: str) -> None:
        self.fleet.redis.script_flush()

    def memory_runs_out_or_is_back(self, data: st.DataObject, delivery: str) -> None:
        """Fill the server's memory, or free it again. A full server refuses enqueues and revivals, and nothing else."""
        self.is_full = not self.is_full
        self.fleet.redis.config_set("maxmemory", int(self.is_full))
        if self.is_full:
            queue = data.draw(st.sampled_from(QUEUES))
            self.enqueue_news([New(f"t{next(self.ids)}", queue, "refused", unique_key="k1")], delivery)
            self.send_revive(list(self.model.places.dead))

    def a_bell_is_lost(self, data: st.DataObject, _: str) -> None:
        queue = data.draw(st.sampled_from(NAMES))
        self.fleet.redis.delete(self.fleet.keys.doorbell(queue))
        self.without_token.add(queue)

    def a_key_held_for_a_time_passes_on(self, data: st.DataObject, _: str) -> None:
        """Let a task hold a unique key for a limited time, and then let another task take the key. The end of the first
        task must not free the key. Random steps rarely reach this situation.
        """
        queue, key = data.draw(st.sampled_from(QUEUES)), data.draw(st.sampled_from(UNIQUE_KEYS))
        first, second = (New(f"t{next(self.ids)}", queue, "x", unique_key=key, hold_ms=ms) for ms in (HOLD_MS, 0))
        self.enqueue_news([first])
        self.move_clock(HOLD_MS * 1000)
        self.enqueue_news([second])
        self.send_cancel(first.id)

    def an_owner_is_forgotten(self, data: st.DataObject, delivery: str) -> None:
        """Delete an owner, as an operator might do by hand. The owner's in-flight list then belongs to no registered
        owner until a poller finds the list.
        """
        if self.model.leases.expires:
            owner = self.pick(data, self.model.leases.expires)
            self.fleet.redis.zrem(self.fleet.keys.owners, owner)
            del self.model.leases.expires[owner]
            self.forgotten.add(owner)
            if data.draw(st.booleans()):
                self.move_clock(10 * SECOND_US)
                self.send_sweep()
                self.orphans_are_adopted(data, delivery)

    def orphans_are_adopted(self, _: st.DataObject, delivery: str) -> None:
        owners = list(self.named)

        def check(adopted: int) -> None:
            assert adopted == self.model.adopt_orphans(self.now, owners)

        self.call(self.fleet.store.adopt_orphans(LEASE_MS, owners), check, delivery)
