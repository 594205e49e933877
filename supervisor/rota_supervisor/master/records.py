"""Everything the master knows, in one place: what its parts read and move."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase, boottime_ns
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import taken_queues
from rota_supervisor.layout import Role
from rota_supervisor.master.background import Background
from rota_supervisor.master.children.child import Child, PoolKey
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.children.observing import NANOSECONDS
from rota_supervisor.master.children.told import PoolTold, Told
from rota_supervisor.master.planning.backoff import CALM, Backoff
from rota_supervisor.master.planning.targets import Stage, Stop, worker_counts
from rota_supervisor.master.reload.reloading import Reloading
from rota_supervisor.master.requests.quieting import Quiet
from rota_supervisor.master.shown.gauges import Gauges
from rota_supervisor.notice import Held


def now_seconds() -> float:
    """The master's clock: CLOCK_BOOTTIME, as the slots have it."""
    return boottime_ns() / NANOSECONDS


@dataclass(slots=True)
class Records:
    """The children, the rollout, the stage of stopping; `wake` has the loop look at all of it.

    `quiet`: workers claim nothing for now; those that are there were told, and those that begin find it in their slot.
    `held`: the pools whose starts were held back at the last step, those that need a person first. `last_reload`,
    `last_death`: what became of the last one, and `at` which second of the master's clock, for people.
    """

    memory: SlotMemory
    gauges: Gauges
    reloading: Reloading
    fleet: Fleet = field(default_factory=Fleet)
    stop: Stop = field(default_factory=Stop)
    quiet: Quiet = Quiet.OFF
    last_reload: Mapping[str, Any] | None = None
    last_death: Mapping[str, Any] | None = None
    backoffs: dict[PoolKey, Backoff] = field(default_factory=dict)
    held: tuple[Held, ...] = ()
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    background: Background = field(default_factory=Background)
    told: Told = field(default_factory=Told)

    @property
    def phase(self) -> Phase:
        """What the master does, as its own slot shows it."""
        if self.stop.stage is not Stage.RUNNING:
            return Phase.DRAINING
        if self.reloading.rollout.current is None:
            return Phase.BOOTING
        return Phase.QUIET if self.quiet.asked else Phase.IDLE

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.reloading.config

    @property
    def taken_queues(self) -> list[str]:
        """The queues that this node's workers take, as many as there are to be of them now."""
        return taken_queues(self.config, worker_counts(self.reloading.rollout, self.reloading.scaling))

    def config_of(self, generation: int) -> Config:
        """A generation's configuration; the one in force when that generation is over."""
        found = self.reloading.rollout.of(generation)
        return self.config if found is None else found.config

    def told_to(self, child: Child) -> PoolTold | None:
        """What a worker is told, None when its pool is no more."""
        return self.told.of(self.config_of(child.generation)).get(child.pool)

    def forgive(self) -> None:
        """Start afresh where starts are held back, as a person wants it who asks for a reload.

        Not for code that never worked: a generation on its way is judged by its own tries.
        """
        for key, backoff in self.backoffs.items():
            if backoff.ever_ready or key.role not in (Role.ZYGOTE, Role.WORKER):
                self.backoffs[key] = backoff.forgiven()

    def backoff_of(self, key: PoolKey) -> Backoff:
        """The back-off of one generation of a pool."""
        return self.backoffs.get(key, CALM)
