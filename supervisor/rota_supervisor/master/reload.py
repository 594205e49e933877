"""What a new configuration changes, as a pure difference of two: so that nothing else is touched."""

from dataclasses import asdict, dataclass
from typing import Final

from rota.child.settings import settings_to_json
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import poller_settings, pool_sizes
from rota_supervisor.config.resolve import worker_settings as worker_settings_of
from rota_supervisor.config.rules import served_queues
from rota_supervisor.master.first_settings import exporter_settings
from rota_supervisor.messages import MAX_SETTINGS

# Changing these would move the fleet to other tasks or another place under its clients' feet. Whether the server can
# confirm what a durability asks for is looked at by a master that starts, and by no other.
_NEEDS_RESTART: Final = ("namespace", "redis_url", "control", "durability")


@dataclass(frozen=True, slots=True)
class Change:
    """What is different. `workers`: something they depend on, so that they need a new generation. `rest`:
    something only the master reads, as the limits of draining and booting."""

    counts: bool
    workers: bool
    pollers: bool
    exporter: bool
    listen: bool
    rest: bool

    @property
    def words(self) -> list[str]:
        """The names of what changed."""
        return [name for name, changed in asdict(self).items() if changed]


def change_between(old: Config, new: Config) -> Change:
    """Compare what the children of each are told."""
    changed = {
        "counts": pool_sizes(old) != pool_sizes(new) or old.pollers != new.pollers,
        "workers": _workers_differ(old, new),
        "pollers": poller_settings(old, 0) != poller_settings(new, 0),
        "exporter": exporter_settings(old) != exporter_settings(new),
        "listen": old.http.listen != new.http.listen,
    }
    return Change(**changed, rest=old != new and not any(changed.values()))


def _workers_differ(old: Config, new: Config) -> bool:
    if old.imports != new.imports:
        return True
    before, after = worker_settings_of(old), worker_settings_of(new)
    return any(before[pool] != after[pool] for pool in before.keys() & after.keys())


def faults_of_change(old: Config, new: Config) -> list[Fault]:
    """What a reload cannot change, each with the advice to restart."""
    return [
        Fault(key, "cannot be changed by a reload: stop the master and start it again")
        for key in _NEEDS_RESTART
        if getattr(old, key) != getattr(new, key)
    ]


def oversized_pools(config: Config) -> list[Fault]:
    """Pools whose settings do not fit into one packet to a zygote: thousands of queues or overrides."""
    sizes = {pool: len(settings_to_json(settings)) for pool, settings in worker_settings_of(config).items()}
    return [
        Fault(f"pools.{pool}", f"its queues and overrides take {size} bytes, the limit is {MAX_SETTINGS}: split it")
        for pool, size in sizes.items()
        if size > MAX_SETTINGS
    ]


def unserved_queues(config: Config, tasks: dict[str, str]) -> list[Fault]:
    """The imported tasks whose queue stands in no tier: nobody would ever run them."""
    served = set(served_queues(config))
    return [
        Fault("tiers", f"no tier serves queue {queue!r} of task {name!r}: add it to tiers, or to the task's pool")
        for name, queue in sorted(tasks.items())
        if queue not in served
    ]


def unknown_overrides(config: Config, tasks: dict[str, str]) -> list[str]:
    """Names in `[tasks.NAME]` that no imported module defines."""
    return sorted(config.tasks.keys() - tasks.keys())
