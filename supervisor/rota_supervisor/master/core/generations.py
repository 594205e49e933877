"""The generations that workers belong to: the one in force and the one that is being rolled out. A new configuration is
compared with the old one, so that only the affected processes are replaced.

A candidate is *loading* until its zygote is ready and the queues of all its tasks are served. Then it is *promoted*:
its configuration comes into force, and workers are replaced one by one. When all workers have been replaced, the
candidate becomes the current generation. If it fails before that, it is dropped, and the fleet returns to the previous
generation.

The workers of a generation without new code are forked from the zygote of the previous generation. Workers whose
settings do not change are not replaced. They keep the number of the generation that last changed either the code or the
settings of their pool.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypedDict

from rota.child.child_settings import settings_to_json
from rota.telemetry.metrics import QueueLabels
from rota.url_logins import login_in, without_login
from rota_supervisor.config import loader, resolution
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.layers import leaves
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config, SigningConfig
from rota_supervisor.config.resolution import WorkerRange, pool_sizes, served_queues
from rota_supervisor.master.core import process_settings
from rota_supervisor.messages import MAX_SETTINGS

# The effect of a new configuration


# If these keys changed, the fleet would use other tasks or another server, while clients still used the old ones.
# `durability` is listed because only a starting master checks whether the server can confirm writes as required.
_NEEDS_RESTART: Final = (
    *("namespace", "redis_url", "redis_tls_ca", "redis_tls_cert", "redis_tls_key"),
    *("control", "durability"),
)
_MAY_BE_EMPTY: Final = "adopt."  # A table `[adopt.NAME]` is meaningful even if it has no keys.


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two configurations."""

    changed_parts: list[str]  # the names of the changed parts, for example `workers`
    code: bool  # whether modules are imported again
    pools: tuple[str, ...]  # the new pools, and the pools whose workers get different settings


def change_between(old: Config, new: Config, *, fresh: bool = False) -> Change:
    """Compare the children's settings in two configurations. If `fresh` is true, the code is loaded again in any
    case."""
    before = process_settings.worker_settings(old)
    after = process_settings.worker_settings(new)
    stale = [pool for pool in after if pool in before and before[pool] != after[pool]]
    code = old.imports != new.imports
    changed = {
        "counts": resolution.pool_sizes(old) != resolution.pool_sizes(new) or old.pollers != new.pollers,
        "workers": code or bool(stale),
        "pollers": process_settings.poller_settings(old, 0) != process_settings.poller_settings(new, 0),
        "schedules": old.schedules != new.schedules,
        "exporter": process_settings.exporter_settings(old) != process_settings.exporter_settings(new),
        "listen": old.http.listen != new.http.listen,
    }
    # Some settings, such as the drain limits, are read only by the master. A change that affects only such settings is
    # listed as `rest`.
    changed["rest"] = old != new and not any(changed.values())
    changed["workers"] |= fresh
    changed_parts = [word for word, is_changed in changed.items() if is_changed]
    return Change(changed_parts, code or fresh, (*stale, *(after.keys() - before.keys())))


def faults_of_change(old: Config, new: Config) -> list[Fault]:
    """Return a fault for each change that a reload cannot make. Its message describes what to do instead."""
    changed = [key for key in _NEEDS_RESTART if _fixed_part(old, key) != _fixed_part(new, key)]
    if bool(old.redis_credentials) != bool(new.redis_credentials):  # a reload can replace one provider with another
        changed.append("redis_credentials")
    advice = "this setting cannot be changed by a reload: stop the master and start it again"
    restart = [Fault(key, advice) for key in changed]
    return restart + _faults_of_signing(old.signing, new.signing)


def _fixed_part(config: Config, key: str) -> object:
    """Return the part of a key's value that a reload cannot change. Of `redis_url`, that is everything but the user and
    the password; of any other key, it is the whole value."""
    url = config.redis_url
    return (without_login(url), login_in(url) is None) if key == "redis_url" else getattr(config, key)


def _faults_of_signing(old: SigningConfig, new: SigningConfig) -> list[Fault]:
    """Return a fault if running workers and new workers would refuse each other's tasks during the reload. Otherwise
    return an empty list."""
    if new.required and not old.keys:
        message = "running workers do not sign yet: first set keys and sign_with, reload, and then set required"
        return [Fault("signing.required", message)]
    if not (old.keys and new.keys):
        return []
    if new.sign_with not in old.keys:
        message = (
            f"running workers do not have the key {new.sign_with}: first add it to keys, reload, and then set this"
        )
        return [Fault("signing.sign_with", message)]
    if old.sign_with not in new.keys:
        message = f"running workers sign with the key {old.sign_with}: first set sign_with to another key, reload, and "
        return [Fault("signing.keys", f"{message}then remove it")]
    return []


def oversized_pools(config: Config) -> list[Fault]:
    """Return a fault for each pool with settings that do not fit into a packet to a zygote, for example because of
    thousands of queues."""
    sizes = {
        pool: len(settings_to_json(settings)) for pool, settings in process_settings.worker_settings(config).items()
    }
    return [
        Fault(
            f"pools.{pool}",
            f"the queues and overrides of the pool take {size} bytes, but the limit is {MAX_SETTINGS}: split the pool",
        )
        for pool, size in sizes.items()
        if size > MAX_SETTINGS
    ]


# The keys whose values differ


class KeyChange(TypedDict):
    """A key whose value differs in a new configuration, as shown in the JSON output of a preview."""

    key: str
    old: Any  # None if the key had no value
    new: Any
    origin: str  # the source of the new value


def differences(before: Config, origins: Mapping[str, str], loaded: Loaded) -> list[KeyChange]:
    """Return each key whose value differs between two configurations, in the order of the configuration.

    `origins` has the sources of the values in `before`. Secrets are redacted.
    """
    old = _given(before, origins)
    new = _given(loaded.config, loaded.origins)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if before.redis_url != loaded.config.redis_url and "redis_url" not in keys:  # Only the password differs.
        keys.append("redis_url")
    return [
        {"key": key, "old": old.get(key), "new": new.get(key), "origin": loader.origin_of(loaded, key)} for key in keys
    ]


def in_lines(rows: Iterable[KeyChange]) -> list[str]:
    """Return the changed keys as lines for people, for example `workers: 2 -> 4 (file rota.toml)`."""
    return [f"{row['key']}: {_shown(row['old'])} -> {_shown(row['new'])} ({row['origin']})" for row in rows]


def _given(config: Config, origins: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a configuration by dotted path. Keys that were not given in an optional table, such as
    `[queues.NAME]`, are left out."""
    usual = dict(leaves(loader.as_values(Config())))
    values = leaves(loader.as_values(config))
    return {key: value for key, value in values if key in usual or key in origins or key.startswith(_MAY_BE_EMPTY)}


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower()


FIRST: Final = 1


@dataclass(frozen=True)  # Cached properties do not work with slots.
class Generation:
    """One loading of the configuration, and of the user code if that was loaded again."""

    number: int
    code: int  # the generation from whose zygote the workers are forked; equal to `number` if the code is new
    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)  # the source of the value at each dotted path
    # For each pool whose settings have changed since the code of this generation was loaded: the generation that last
    # changed them
    since: Mapping[str, int] = field(default_factory=dict)

    def of_pool(self, pool: str) -> int:
        """Return the number of the generation to which the workers of a pool belong."""
        return self.since.get(pool, self.code)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all generations that this one uses: its own, that of its zygote, and those of its workers."""
        return frozenset((self.number, self.code, *self.since.values()))

    @cached_property
    def pools(self) -> dict[str, process_settings.WorkersOfPool]:
        """The settings of the workers of each pool.

        The settings are cached, because every start, every death and every return of prefetched tasks needs them, and
        computing them takes 8 ms with 500 queues. Computing them 50 times in a row blocked the master's loop for 0.4 s.
        """
        return process_settings.of_workers(self.config)

    @cached_property
    def queue_labels(self) -> QueueLabels:
        """The metric label under which each queue is counted: its name, or the pattern by which it is served."""
        return QueueLabels(served_queues(self.config))


@dataclass(frozen=True, slots=True)
class Rollout:
    """The generations in use: the current one and the candidate that may replace it."""

    current: Generation | None  # None until the first generation works
    candidate: Generation | None
    promoted: bool = False
    last: int = FIRST  # the highest generation number so far
    # The first generation, if a reload replaced it before it worked. It is tried again if that reload is refused.
    displaced: Generation | None = None

    @classmethod
    def first(cls, config: Config, origins: Mapping[str, str]) -> "Rollout":
        """Return the rollout of a starting master, with the first generation as its candidate."""
        return cls(None, Generation(FIRST, FIRST, config, origins))

    @property
    def is_first(self) -> bool:
        """Whether no generation has worked yet, so that there is none to return to."""
        return self.current is None and self.displaced is None

    @property
    def latest(self) -> Generation:
        """The most recently requested generation."""
        found = self.candidate or self.current
        assert found is not None
        return found

    @property
    def in_force(self) -> Generation:
        """The generation whose configuration applies now. When the master starts, this is the candidate, because there
        is no other generation."""
        found = self.candidate if self.promoted or self.current is None else self.current
        assert found is not None
        return found

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The current generation, if there is one, followed by the candidate, if there is one. Until the candidate
        replaces it, the current generation is the fallback."""
        return tuple(found for found in (self.current, self.candidate) if found is not None)

    @property
    def sizes(self) -> list[dict[str, WorkerRange]]:
        """The configured number of workers of each pool, as one mapping for each configuration that is or may come into
        force. The first mapping is that of the generation to which a failed reload returns."""
        generations = (self.displaced, *self.generations)
        return [pool_sizes(generation.config) for generation in generations if generation is not None]

    def of(self, number: int) -> Generation | None:
        """Return the generation with this number, or None if it is no longer in use."""
        return next((found for found in self.generations if number in found.numbers), None)

    @property
    def new_numbers(self) -> frozenset[int]:
        """The numbers of those generations that only the candidate uses. They are dropped if the candidate is
        refused."""
        kept = frozenset[int]() if self.current is None else self.current.numbers
        return frozenset[int]() if self.candidate is None else self.candidate.numbers - kept

    def is_loading(self, code: int) -> bool:
        """Whether a candidate is waiting for this code to be loaded."""
        return self.candidate is not None and self.candidate.code == code and not self.promoted

    def with_candidate(
        self, config: Config, origins: Mapping[str, str], *, proven: bool, pools: Iterable[str] | None = None
    ) -> "Rollout":
        """Return the rollout with a new candidate, which replaces any earlier candidate.

        An earlier candidate becomes the current generation if its configuration is in force and all its pools work
        (`proven`). The fleet then returns to it if the new candidate fails. `pools` lists the pools whose settings
        change while the code stays the same. It is None if there is new code, because then all workers are replaced.
        """
        current = self.candidate if self.promoted and proven else self.current
        before = self.latest
        number = self.last + 1
        code = number if pools is None else before.code
        since = {} if pools is None else {**before.since, **dict.fromkeys(pools, number)}
        displaced = (self.displaced or self.candidate) if current is None else None
        return Rollout(current, Generation(number, code, config, origins, since), last=number, displaced=displaced)

    def with_config(self, config: Config, origins: Mapping[str, str], new_pools: Iterable[str] = ()) -> "Rollout":
        """Return the rollout after a configuration that changes no existing worker's settings has been applied: it
        replaces the configuration of the candidate, or of the current generation if there is no candidate.

        `new_pools` lists the pools that the configuration adds. Their workers belong to the candidate, even if the
        candidate has no new code, because the current generation does not have these pools.
        """
        if self.candidate is not None:
            since = {**self.candidate.since, **dict.fromkeys(new_pools, self.candidate.number)}
            return replace(self, candidate=replace(self.candidate, config=config, origins=origins, since=since))
        assert self.current is not None
        return replace(self, current=replace(self.current, config=config, origins=origins))

    def promote(self) -> "Rollout":
        """Return the rollout in which the candidate's configuration is in force, for use once its code is loaded."""
        return replace(self, promoted=True)

    def commit(self) -> "Rollout":
        """Return the rollout in which the candidate has become the current generation, for use once its workers have
        taken over."""
        return Rollout(self.candidate, None, last=self.last)

    def roll_back(self) -> "Rollout":
        """Return the rollout in which the previous generation is in force again, for use after the candidate has
        failed."""
        return Rollout(self.current, self.displaced, last=self.last)
