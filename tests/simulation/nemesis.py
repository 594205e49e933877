"""The nemesis of a simulation. It draws faults from the seed, causes them, and ends each of them."""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from rota_supervisor.config.model import Config, LeaseConfig, Limits, PoolConfig, Restarts
from rota_supervisor.layout import Role
from simulation.network import Up
from simulation.node import Node
from simulation.process import Process
from simulation.serving import draw_serving
from simulation.timeline import Action
from simulation.world import World

Fault = Callable[["Nemesis"], None]

SPELLS: Final = (0.05, 0.5, 1.5, 3.0, 6.0)  # the possible durations of a fault in seconds
LARGE: Final = 17  # a number of workers that is large enough for the master to replace two of them at once
# Each pair is a lease and its renewal interval, in seconds.
LEASES: Final = ((1.0, 0.25), (2.0, 0.5), (4.0, 1.0), (8.0, 4.0))


def draw_config(random: Random) -> Config:
    """Draw a random configuration with short times, so that everything happens within a minute of simulated time."""
    limits = Limits(
        time_limit_seconds=random.choice([1.0, 2.0]),
        drain_seconds=random.choice([0.0, 1.0, 3.0]),
        boot_seconds=random.choice([2.0, 4.0]),
        # Longer than 3 s, because a master does not notice a shorter suspension.
        beat_seconds=random.choice([4.0, 6.0]),
    )
    config = Config(
        namespace="simulated",
        workers=random.choice([1, 2, 2, 3, 3, 4]) if random.random() < 0.97 else LARGE,
        pollers=random.choice([1, 1, 1, 2]),
        imports=("good.0",),
        limits=limits,
        lease=LeaseConfig(*random.choice(LEASES)),
        restarts=Restarts(backoff_max_seconds=random.choice([2.0, 30.0])),
    )
    if random.random() < 0.2:
        pools = {
            "a": PoolConfig(workers=2, concurrency=random.choice([1, 4, 4])),
            "b": PoolConfig(workers=random.choice([0, 1])),
        }
        config = msgspec.structs.replace(config, workers=None, pools=pools)
    return draw_serving(random, config) if random.random() < 0.3 else config


class Nemesis:
    """The source of all faults. It records each fault in the trace. `busy_until` is the time at which the last planned
    fault ends.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        world.trouble.boot_seconds = world.random.choice([0.05, 0.05, 0.5])
        world.trouble.claim_limit = world.random.choice([1, 1, 3])
        world.trouble.life_length = world.random.choice([0, 0, 2, 5])
        world.trouble.soft_limits = world.random.choice([0.0, 0.5])
        world.trouble.swallowed = world.random.choice([0.0, 0.5])
        world.trouble.beats = world.random.choice([0.0, 0.3])
        world.trouble.stacks = world.random.choice([1.0, 0.8])
        self.random = world.random
        self._version = 0
        self.busy_until = 0.0

    def strike(self, fault: Fault) -> None:
        """Cause the fault now."""
        if self.world.living:
            self.world.note("faults", fault.__name__)
            fault(self)

    def later(self, seconds: float, fault: Fault) -> None:
        """Cause the fault after this number of seconds."""
        self.after(seconds, lambda: self.strike(fault))

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action of a fault, for example its end, after this number of seconds."""
        self.busy_until = max(self.busy_until, self.world.timeline.now + seconds)
        self.world.timeline.after(seconds, action)

    def spell(self) -> float:
        """Draw the duration of a fault, in seconds."""
        return self.random.choice(SPELLS)

    def node(self) -> Node:
        """Draw a random living node."""
        return self.random.choice(self.world.living)

    def process(self, node: Node, *roles: Role) -> Process | None:
        """Draw a random process of a node with one of these roles, or of any role if none is given. Return None if
        there is no such process.
        """
        found = [process for process in node.processes.values() if not roles or process.role in roles]
        return self.random.choice(found) if found else None

    def next_version(self) -> int:
        """Return the next version number for new code."""
        self._version += 1
        return self._version

    def excuse(self, *names: str) -> None:
        """Allow these nodes to lose their leases from now on, because a fault may cause the loss."""
        self.world.excused.update(names)

    def heal(self) -> None:
        """End all remaining faults. Children that are stopped stay stopped, because the master must kill them when
        their deadline has passed.
        """
        world = self.world
        world.network.set_up(Up.UP)
        world.network.cut.clear()
        world.network.slow.clear()
        world.network.losing = world.network.late = 0.0
        world.trouble.life_length = 0
        for node in world.living:
            if node.frozen:
                node.thaw()
            if node.master_stopped:
                node.continue_master()
            node.quiet(on=False)
