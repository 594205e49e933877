"""Everything the master knows, in one place: what its parts read and move."""

import asyncio
from dataclasses import dataclass, field

from rota.child.slot_memory import SlotMemory
from rota.child.slots import boottime_ns
from rota_supervisor.config.model import Config
from rota_supervisor.master.background import Background
from rota_supervisor.master.backoff import CALM, Backoff
from rota_supervisor.master.children import PoolKey
from rota_supervisor.master.fleet import Fleet
from rota_supervisor.master.gauges import Gauges
from rota_supervisor.master.observing import NANOSECONDS
from rota_supervisor.master.reloading import Reloading
from rota_supervisor.master.targets import Stop


def now_seconds() -> float:
    """The master's clock: CLOCK_BOOTTIME, as the slots have it."""
    return boottime_ns() / NANOSECONDS


@dataclass(slots=True)
class Records:
    """The children, the rollout, the stage of stopping; `wake` has the loop look at all of it."""

    memory: SlotMemory
    gauges: Gauges
    reloading: Reloading
    fleet: Fleet = field(default_factory=Fleet)
    stop: Stop = field(default_factory=Stop)
    backoffs: dict[PoolKey, Backoff] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    background: Background = field(default_factory=Background)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.reloading.config

    def config_of(self, generation: int) -> Config:
        """A generation's configuration; the one in force when that generation is over."""
        found = self.reloading.rollout.of(generation)
        return self.config if found is None else found.config

    def backoff_of(self, key: PoolKey) -> Backoff:
        """The back-off of one generation of a pool."""
        return self.backoffs.get(key, CALM)
