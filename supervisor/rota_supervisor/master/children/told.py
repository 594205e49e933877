"""What the workers of each pool are told, worked out once for each configuration in use.

With 500 queues that takes 8 ms. Births, deaths and recalls ask for it one by one: 50 at once held the loop for 0.4 s.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from rota.child.settings import WorkerSettings, settings_to_json
from rota.protocol.store import pack_tiers
from rota.protocol.wire import Packed
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import worker_settings

_CONFIGS_IN_USE: Final = 4  # the one in force, a candidate's, and those of generations that are leaving
NO_TIERS: Final = pack_tiers(())


@dataclass(frozen=True, slots=True)
class PoolTold:
    """A pool's settings, the text that a zygote is told, and the tiers as scripts take them."""

    settings: WorkerSettings
    text: str
    tiers: Packed


class Told:
    """Remembers by the identity of a configuration, which is frozen."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Config, dict[str, PoolTold]]] = deque(maxlen=_CONFIGS_IN_USE)

    def of(self, config: Config) -> dict[str, PoolTold]:
        """What its workers are told, by pool."""
        for known, pools in self._kept:
            if known is config:
                return pools
        pools = {
            name: PoolTold(settings, settings_to_json(settings), pack_tiers(settings.tiers))
            for name, settings in worker_settings(config).items()
        }
        self._kept.append((config, pools))
        return pools
