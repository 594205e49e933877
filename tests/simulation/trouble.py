"""What the processes of the world suffer from for a while: the odds that the simulated parts draw by."""

from dataclasses import dataclass
from random import Random

from rota_supervisor.layout import Role


@dataclass(slots=True)
class Trouble:
    """Shares are odds in [0, 1]. `life_length`: attempts after which a worker claims no more, 0 for no end.
    `soft_limits`: the share of tasks that have one; `swallowed`: of those, that go on when told. `beats`: the share of
    tasks that beat once. `stacks`: of children that can be asked for their stack. `boot_seconds`: a worker's way to its
    first turn, at most; `import_seconds` a zygote's. `channel_lingers`: how long at most between the end of a zygote's
    channel and its zombie; either may come first."""

    fork_fails: float = 0.0
    reports_lost: float = 0.0
    boots_die: float = 0.0
    boots_hang: float = 0.0
    slow_starts: float = 0.0
    ignores_term: bool = False
    claim_limit: int = 1
    life_length: int = 0
    soft_limits: float = 0.0
    swallowed: float = 0.0
    beats: float = 0.0
    stacks: float = 1.0
    boot_seconds: float = 0.05
    import_seconds: float = 0.3
    channel_ends_first: float = 0.5
    channel_lingers: float = 0.003

    def seconds_to_boot(self, random: Random, role: Role) -> float:
        """How long a spawned child takes until it is ready."""
        most = self.import_seconds if role is Role.ZYGOTE else self.boot_seconds
        return random.uniform(most / 5, most)
