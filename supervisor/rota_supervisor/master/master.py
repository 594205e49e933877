"""The master: looks at the children, plans, performs; woken by what happens, and once a tick.

1. Whatever happens (a signal, a death, a zygote's message, a registered owner) wakes the loop.
2. A step takes in messages, deaths and slots, settles the rollout, and performs what `plan` says.
3. Everything that decides is elsewhere and pure; everything that waits runs beside the loop.
"""

import asyncio
from typing import Final, assert_never

from rota.child.slots import MASTER_SLOT, Phase
from rota.telemetry import events, log
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master import stopping
from rota_supervisor.master.births import Births
from rota_supervisor.master.children import LIVE, Child, PoolKey, Reason, State
from rota_supervisor.master.deaths import Deaths
from rota_supervisor.master.first_settings import first_settings
from rota_supervisor.master.hands import Hands
from rota_supervisor.master.listening import Listening
from rota_supervisor.master.owners import Owners
from rota_supervisor.master.plan import Abandon, Action, Drain, Kill, Start, plan
from rota_supervisor.master.reaper import Reaper
from rota_supervisor.master.records import Records, now_seconds
from rota_supervisor.master.targets import Stage, desired_of, worker_counts

_LATE_TICKS: Final = 3


class Master:
    """Performs what is planned. `import_paths`: folders with the task modules."""

    def __init__(
        self,
        records: Records,
        hands: Hands,
        *,
        owners: Owners,
        births: Births,
        deaths: Deaths,
        reaper: Reaper,
        listening: Listening,
        import_paths: tuple[str, ...],
    ) -> None:
        self._records = records
        self._hands = hands
        self._owners = owners
        self._births = births
        self._deaths = deaths
        self._reaper = reaper
        self._listening = listening
        self._import_paths = import_paths
        self._stepped_at = self._awake_since = now_seconds()

    # The loop

    async def run(self) -> None:
        """Step until everything has left. Raises Failure when the first generation never works."""
        records = self._records
        while True:
            records.wake.clear()
            self.step()
            if stopping.is_over(records.stop, records.fleet, now_seconds()):
                return
            try:
                async with asyncio.timeout(self._seconds_to_wait()):
                    await records.wake.wait()
            except TimeoutError:
                continue

    def step(self) -> None:
        """Look, plan, perform."""
        records, reloading = self._records, self._records.reloading
        now = now_seconds()
        self._note_sleep(now)
        self._births.listen()
        self._reaper.reap(now)
        self._observe(now)
        if records.stop.stage is Stage.RUNNING and reloading.settle(records.fleet, records.backoffs):
            self._say_ready()
        if reloading.fatal is not None:
            raise reloading.fatal
        records.stop = stopping.advance(records.stop, records.fleet, now)
        desired = desired_of(
            reloading.rollout, reloading.versions, records.stop, reloading.adjust, dict(records.backoffs)
        )
        registering = [child for action in plan(desired, records.fleet, now) if (child := self._perform(action, now))]
        if registering:
            lease_seconds = records.config.lease.seconds
            records.background.start(self._owners.register(registering, lease_seconds, self._births.registered))
        self._show(now)

    def _note_sleep(self, now: float) -> None:
        """Notice that this process was stopped, or the machine slept: nobody else may have had time either."""
        if now - self._stepped_at > _LATE_TICKS * TICK_SECONDS:
            self._awake_since = now
        self._stepped_at = now

    def _seconds_to_wait(self) -> float:
        now = now_seconds()
        waits = [until - now for each in self._records.backoffs.values() if (until := each.wait_until) > now]
        return min([TICK_SECONDS, *waits])

    def _observe(self, now: float) -> None:
        for child in self._records.fleet:
            self._births.look(child, now, self._awake_since)
        self._calm_down(now)

    def _calm_down(self, now: float) -> None:
        records = self._records
        wanted = {generation.number for generation in records.reloading.rollout.generations}
        for key, backoff in list(records.backoffs.items()):
            if key.role in (Role.ZYGOTE, Role.WORKER) and key.generation not in wanted:
                del records.backoffs[key]
            else:
                records.backoffs[key] = backoff.calmed(now, records.config.restarts)

    def _show(self, now: float) -> None:
        records = self._records
        counts = worker_counts(records.reloading.rollout, records.reloading.adjust)
        if records.stop.stage is not Stage.RUNNING:
            counts = dict.fromkeys(counts, 0)
        waiting = {pool: self._backing_off(pool, count, now) for pool, count in counts.items()}
        records.gauges.show_workers(counts, waiting, records.fleet)
        records.memory.slot(MASTER_SLOT).beat()

    def _backing_off(self, pool: str, count: int, now: float) -> int:
        """How many workers of a pool wait for its back-off to end."""
        key = PoolKey(Role.WORKER, pool, self._records.reloading.rollout.in_force.number)
        if self._records.backoff_of(key).wait_until <= now:
            return 0
        workers = self._records.fleet.of(Role.WORKER)
        return max(0, count - sum(child.pool == pool and child.state in LIVE for child in workers))

    def _say_ready(self) -> None:
        self._records.memory.slot(MASTER_SLOT).phase = Phase.IDLE
        log.logger().info(events.FLEET_READY, workers=len(self._records.fleet.of(Role.WORKER, State.READY)))

    # Performing: the record moves first

    def _perform(self, action: Action, now: float) -> Child | None:
        """Do it; answers a child whose owner is to be registered."""
        child = self._records.fleet.apply(action, now)
        match action:
            case Start():
                if child.role is Role.WORKER:
                    return child
                self._spawn(child)
            case Drain():
                self._hands.ask_to_leave(child)
            case Kill():
                _say_kill(child)
                self._hands.kill(child)
            case Abandon():
                self._records.fleet.forget(child)
            case _:
                assert_never(action)
        return None

    def _spawn(self, child: Child) -> None:
        config = self._records.config
        if child.role is Role.ZYGOTE:
            config = self._records.config_of(child.generation)
        settings = first_settings(child, config, self._free_rank(child), self._import_paths)
        listen_fd = self._listening.fd if child.role is Role.EXPORTER else None
        try:
            self._hands.start(child, settings, listen_fd)
        except OSError as error:
            self._deaths.never_born(child, str(error))

    def _free_rank(self, child: Child) -> int:
        """A poller's place among its node's pollers: how many others of its generation there are."""
        others = [other for other in self._records.fleet.of(Role.POLLER) if other is not child and other.state in LIVE]
        return sum(other.generation == child.generation for other in others)

    # Requests

    def ask_to_stop(self, *, at_once: bool) -> None:
        """Begin to drain, or kill everything."""
        records = self._records
        drain_seconds = records.config.limits.drain_seconds
        before = records.stop
        records.stop = stopping.begin(before, now_seconds(), drain_seconds, at_once=at_once)
        if records.stop is not before:
            records.memory.slot(MASTER_SLOT).phase = Phase.DRAINING
            log.logger().info(events.FLEET_DRAINING, at_once=at_once, seconds=0 if at_once else drain_seconds)
        records.wake.set()

    def adjust(self, more: int) -> None:
        """One worker more or less in the first pool."""
        reloading = self._records.reloading
        counts = worker_counts(reloading.rollout, reloading.adjust)
        pool = next(iter(counts))
        if counts[pool] + more >= 0:
            reloading.adjust[pool] = reloading.adjust.get(pool, 0) + more
            log.logger().info(events.FLEET_SCALED, pool=pool, workers=counts[pool] + more)
        self._records.wake.set()


def _say_kill(child: Child) -> None:
    event = events.WORKER_HUNG if child.why is Reason.HUNG else events.WORKER_KILLED
    log.logger().warning(event, child=child.role.value, slot=child.slot, child_pid=child.pid, reason=child.why)
