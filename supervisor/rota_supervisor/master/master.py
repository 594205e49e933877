"""The master: looks at the children, plans, performs; woken by what happens, and once a tick.

1. Whatever happens (a signal, a death, a zygote's message, a registered owner) wakes the loop.
2. A step takes in messages, deaths and slots, settles the rollout, and performs what `plan` says.
3. Everything that decides is elsewhere and pure; everything that waits runs beside the loop.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, assert_never

from rota.child.slots import MASTER_SLOT
from rota.telemetry import events, log
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import LIVE, Child, State
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.deaths.reaper import Reaper
from rota_supervisor.master.first_settings import first_settings
from rota_supervisor.master.owners.owners import Owners
from rota_supervisor.master.planning.actions import Abandon, Action, Drain, Dump, Interrupt, Kill, Start
from rota_supervisor.master.planning.deadlines import next_look
from rota_supervisor.master.planning.desired import Desired
from rota_supervisor.master.planning.plan import plan
from rota_supervisor.master.planning.targets import Stage, desired_of
from rota_supervisor.master.records import Records, now_seconds
from rota_supervisor.master.reload.listening import Listening
from rota_supervisor.master.requests import stopping
from rota_supervisor.master.shown.standings import Standings

_LATE_TICKS: Final = 3
_AFTER_SECONDS: Final = 0.001  # the grain of epoll


class Master:
    """Performs what is planned. `import_paths`: folders with the task modules. `tell` is called in each step."""

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
        tell: Callable[[float], None],
    ) -> None:
        self._records = records
        self._hands = hands
        self._owners = owners
        self._births = births
        self._deaths = deaths
        self._reaper = reaper
        self._listening = listening
        self._import_paths = import_paths
        self._tell = tell
        self._standings = Standings(records)
        self._stepped_at = self._awake_since = now_seconds()
        self._next_look = 0.0

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
            reloading.rollout, reloading.versions, records.stop, reloading.scaling, dict(records.backoffs)
        )
        registering = [child for action in plan(desired, records.fleet, now) if (child := self._perform(action, now))]
        if registering:
            lease_seconds = records.config.lease.seconds
            records.background.keep(lambda: self._owners.register(registering, lease_seconds, self._births.registered))
        self._show(desired, now)
        self._next_look = next_look(records.fleet, desired, now)

    def _note_sleep(self, now: float) -> None:
        """Notice that this process was stopped, or the machine slept: nobody else may have had time either."""
        if now - self._stepped_at > _LATE_TICKS * TICK_SECONDS:
            self._awake_since = now
        self._stepped_at = now

    def _seconds_to_wait(self) -> float:
        backoffs = [each.wait_until for each in self._records.backoffs.values()]
        times = [*backoffs, *stopping.deadlines(self._records.stop), self._next_look]
        # What was over at the last step was seen to then: it must not wake us again and again. And a moment later than
        # said, as whatever is due is so only after its time.
        coming = min((at for at in times if at >= self._stepped_at), default=math.inf)
        return min(TICK_SECONDS, max(0.0, coming - now_seconds()) + _AFTER_SECONDS)

    def _observe(self, now: float) -> None:
        for child in self._records.fleet:
            self._births.look(child, now, self._awake_since)
        self._standings.calm_down(now)

    def _show(self, desired: Desired, now: float) -> None:
        self._standings.show(desired.targets)
        own = self._records.memory.slot(MASTER_SLOT)
        own.phase = self._records.phase
        own.beat()
        self._tell(now)

    def _say_ready(self) -> None:
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
            case Interrupt():
                self._hands.interrupt(child)
            case Dump():
                self._hands.dump(child)
            case Kill():
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
