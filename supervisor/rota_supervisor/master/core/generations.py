"""The generations that workers come from, as values: the one in force and the one on its way; and what a new
configuration changes, as a difference of two, so that nothing else is touched.

A candidate is LOADING until its zygote is ready and its tasks' queues are served; then it is *promoted*: its
configuration is in force and workers are replaced, one beside the others. When all are, it is current. A
candidate that fails at any point is dropped, and what was current is desired again.

A generation without new code forks from the zygote of the one before it. Workers whose settings do not change stay,
and keep the number of the generation that last changed the settings of their pool, or the code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from rota.child.child_settings import settings_to_json
from rota.telemetry.metrics import QueueLabels
from rota_supervisor.config import loader, resolution
from rota_supervisor.config.layers import leaves
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config, Fault
from rota_supervisor.config.resolution import pool_sizes, served_queues
from rota_supervisor.master.core import process_settings
from rota_supervisor.messages import MAX_SETTINGS

# What a new configuration changes


# Changing these would move the fleet to other tasks or another place under its clients' feet. Whether the server can
# confirm what a durability asks for is looked at by a master that starts, and by no other.
_NEEDS_RESTART: Final = (
    *("namespace", "redis_url", "redis_tls_ca", "redis_tls_cert", "redis_tls_key"),
    *("control", "durability"),
)
_MAY_BE_EMPTY: Final = "adopt."  # a table of this sort says something without a key


@dataclass(frozen=True, slots=True)
class Change:
    """What is different. `words`: what people are told has changed. `code`: modules are imported anew. `pools`: those
    whose workers are told something else, or that are new."""

    words: list[str]
    code: bool
    pools: tuple[str, ...]


def change_between(old: Config, new: Config, *, fresh: bool = False) -> Change:
    """Compare what children are told by each. `fresh`: the code is to be loaded again, whatever is different."""
    before, after = process_settings.worker_settings(old), process_settings.worker_settings(new)
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
    changed["rest"] = old != new and not any(changed.values())  # what only the master reads, as the limits of draining
    changed["workers"] |= fresh
    words = [word for word, is_changed in changed.items() if is_changed]
    return Change(words, code or fresh, (*stale, *(after.keys() - before.keys())))


def faults_of_change(old: Config, new: Config) -> list[Fault]:
    """What a reload cannot change, each with the advice to restart."""
    changed = [key for key in _NEEDS_RESTART if getattr(old, key) != getattr(new, key)]
    if bool(old.redis_credentials) != bool(new.redis_credentials):  # one provider may follow another
        changed.append("redis_credentials")
    return [Fault(key, "cannot be changed by a reload: stop the master and start it again") for key in changed]


def oversized_pools(config: Config) -> list[Fault]:
    """Pools whose settings do not fit into one packet to a zygote: thousands of queues or overrides."""
    sizes = {
        pool: len(settings_to_json(settings)) for pool, settings in process_settings.worker_settings(config).items()
    }
    return [
        Fault(f"pools.{pool}", f"its queues and overrides take {size} bytes, the limit is {MAX_SETTINGS}: split it")
        for pool, size in sizes.items()
        if size > MAX_SETTINGS
    ]


# The keys that differ


def differences(before: Config, origins: Mapping[str, str], loaded: Loaded) -> list[dict[str, Any]]:
    """Return a row for each key that has another value, in the order of the configuration. None means no value.

    `origins`: where the values of `before` come from. Secrets are redacted.
    """
    old, new = _given(before, origins), _given(loaded.config, loaded.origins)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if before.redis_url != loaded.config.redis_url and "redis_url" not in keys:  # another password
        keys.append("redis_url")
    return [
        {"key": key, "old": old.get(key), "new": new.get(key), "origin": loader.origin_of(loaded, key)} for key in keys
    ]


def in_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the rows as lines for people: `workers: 2 -> 4 (file rota.toml)`."""
    return [f"{row['key']}: {_shown(row['old'])} -> {_shown(row['new'])} ({row['origin']})" for row in rows]


def _given(config: Config, origins: Mapping[str, str]) -> dict[str, Any]:
    """Return the values by dotted path, without the defaults of keys left out in tables such as `[queues.NAME]`."""
    usual = dict(leaves(loader.as_values(Config())))
    values = leaves(loader.as_values(config))
    return {key: value for key, value in values if key in usual or key in origins or key.startswith(_MAY_BE_EMPTY)}


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower()


FIRST: Final = 1


@dataclass(frozen=True)  # without slots, for the cached property
class Generation:
    """One loading of configuration, and of user code if need be.

    `code`: the generation whose zygote it forks from, its own when it brought new code. `origins`: where the value at
    each dotted path came from. `since`: the generations that brought a pool new settings after that code.
    """

    number: int
    code: int
    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)

    def of_pool(self, pool: str) -> int:
        """The generation that the workers of a pool are of."""
        return self.since.get(pool, self.code)

    @property
    def numbers(self) -> frozenset[int]:
        """Its own number, and those of the generations that its zygote and its workers belong to."""
        return frozenset((self.number, self.code, *self.since.values()))

    @cached_property
    def pools(self) -> dict[str, process_settings.WorkersOfPool]:
        """What the workers of each pool are told, worked out once: with 500 queues that takes 8 ms, and starts, deaths
        and recalls ask for it one by one. 50 at once held the loop for 0.4 s."""
        return process_settings.of_workers(self.config)

    @cached_property
    def queue_labels(self) -> QueueLabels:
        """Under which labels queues are counted."""
        return QueueLabels(served_queues(self.config))


@dataclass(frozen=True, slots=True)
class Rollout:
    """`current` is None until the first generation has worked. `last`: the greatest number ever given. `displaced`: the
    first generation when a reload took its place before it worked, to be tried again when that is refused."""

    current: Generation | None
    candidate: Generation | None
    promoted: bool = False
    last: int = FIRST
    displaced: Generation | None = None

    @classmethod
    def first(cls, config: Config, origins: Mapping[str, str]) -> "Rollout":
        """At the start: the first generation is on its way."""
        return cls(None, Generation(FIRST, FIRST, config, origins))

    @property
    def is_first(self) -> bool:
        """Whether no generation has worked, and there is none to go back to."""
        return self.current is None and self.displaced is None

    @property
    def latest(self) -> Generation:
        """What was asked for last."""
        found = self.candidate or self.current
        assert found is not None
        return found

    @property
    def in_force(self) -> Generation:
        """Whose configuration holds now: at the start the candidate's, as there is no other."""
        found = self.candidate if self.promoted or self.current is None else self.current
        assert found is not None
        return found

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Those that are wanted: until a candidate is current, the old one stays to go back to."""
        return tuple(found for found in (self.current, self.candidate) if found is not None)

    @property
    def sizes(self) -> list[dict[str, int]]:
        """Workers by pool of each generation that may come into force, the one that is gone back to first."""
        generations = (self.displaced, *self.generations)
        return [pool_sizes(generation.config) for generation in generations if generation is not None]

    def of(self, number: int) -> Generation | None:
        """A generation that children of this number belong to; None when it is not wanted any more."""
        return next((found for found in self.generations if number in found.numbers), None)

    @property
    def new_numbers(self) -> frozenset[int]:
        """The generations that go when the candidate is refused."""
        kept = frozenset[int]() if self.current is None else self.current.numbers
        return frozenset[int]() if self.candidate is None else self.candidate.numbers - kept

    def is_loading(self, code: int) -> bool:
        """Whether a candidate waits for that code to be loaded."""
        return self.candidate is not None and self.candidate.code == code and not self.promoted

    def with_candidate(
        self, config: Config, origins: Mapping[str, str], *, proven: bool, pools: Iterable[str] | None = None
    ) -> "Rollout":
        """A new generation is on its way; an earlier candidate is forgotten: the last one wins.

        Unless it is promoted and `proven`, its workers being READY: then it is what we go back to. `pools`: those that
        get new settings while the code stays; None for new code, which replaces all workers.
        """
        current = self.candidate if self.promoted and proven else self.current
        before, number = self.latest, self.last + 1
        code = number if pools is None else before.code
        since = {} if pools is None else {**before.since, **dict.fromkeys(pools, number)}
        displaced = (self.displaced or self.candidate) if current is None else None
        return Rollout(current, Generation(number, code, config, origins, since), last=number, displaced=displaced)

    def with_config(self, config: Config, origins: Mapping[str, str], new_pools: Iterable[str] = ()) -> "Rollout":
        """The same generation under a configuration that changes nothing its workers depend on.

        `new_pools`: pools that did not exist before. A candidate notes its own number for them, even without new code,
        since the generation to go back to does not have them.
        """
        if self.candidate is not None:
            since = {**self.candidate.since, **dict.fromkeys(new_pools, self.candidate.number)}
            return replace(self, candidate=replace(self.candidate, config=config, origins=origins, since=since))
        assert self.current is not None
        return replace(self, current=replace(self.current, config=config, origins=origins))

    def promote(self) -> "Rollout":
        """The candidate's zygote is ready."""
        return replace(self, promoted=True)

    def commit(self) -> "Rollout":
        """The candidate's workers have taken over."""
        return Rollout(self.candidate, None, last=self.last)

    def roll_back(self) -> "Rollout":
        """The candidate does not work."""
        return Rollout(self.current, self.displaced, last=self.last)
