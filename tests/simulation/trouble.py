"""The temporary faults of simulated processes, given as probabilities and durations."""

from dataclasses import dataclass
from random import Random

from rota_supervisor.layout import Role


@dataclass(slots=True)
class Trouble:
    """The current values of the faults. Probabilities and shares are between 0 and 1."""

    fork_fails: float = 0.0
    reports_lost: float = 0.0
    boots_die: float = 0.0
    boots_hang: float = 0.0
    slow_starts: float = 0.0
    ignores_term: bool = False
    claim_limit: int = 1
    life_length: int = 0  # the number of attempts after which a worker stops claiming, or 0 for no limit
    soft_limits: float = 0.0  # the share of tasks with a soft limit
    swallowed: float = 0.0  # the share of interrupts and cancellations that a task ignores
    beats: float = 0.0  # the share of tasks that record a heartbeat, exactly once
    stacks: float = 1.0  # the share of children that can dump their stack
    boot_seconds: float = 0.05  # the longest time until a worker's first turn
    import_seconds: float = 0.3  # the longest time until a zygote is ready
    channel_ends_first: float = 0.5
    channel_lingers: float = 0.003  # the longest time by which the death of a zygote follows the end of its channel

    def seconds_to_boot(self, random: Random, role: Role) -> float:
        """Return the time until a spawned child is ready."""
        most = self.import_seconds if role is Role.ZYGOTE else self.boot_seconds
        return random.uniform(most / 5, most)
