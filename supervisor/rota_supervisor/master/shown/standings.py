"""Pools whose starts are held back, as people see them: in the log, the gauges, and the notice for the exporter."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from rota.child.slots import MASTER_SLOT
from rota.telemetry import events, log
from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import LIVE, Child, PoolKey, State
from rota_supervisor.master.planning.backoff import CALM, Backoff, Standing
from rota_supervisor.master.planning.desired import Target
from rota_supervisor.master.planning.targets import EXPORTER, POLLERS, Stage, Versions, zygote_pool
from rota_supervisor.master.records import Records
from rota_supervisor.master.reload.rollout import Rollout
from rota_supervisor.notice import Held, Notice

_GRAVITY: Final = list(Standing)  # from RUNNING to FATAL
_Name = tuple[Role, str]


class Standings:
    """Keeps the back-offs up to date between deaths, and tells of what they amount to."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._notice = Notice(records.memory.slot(MASTER_SLOT).spare)
        self._told: dict[_Name, Standing] = {}

    def calm_down(self, now: float) -> None:
        """Forget what is over: what nobody wants any more, early deaths, and relapses once something works."""
        records = self._records
        wanted = wanted_keys(records.reloading.rollout, records.reloading.versions)
        for key, backoff in list(records.backoffs.items()):
            if key not in wanted:
                del records.backoffs[key]
            else:
                records.backoffs[key] = self._proven(key, backoff).calmed(now, records.config.restarts)

    def _proven(self, key: PoolKey, backoff: Backoff) -> Backoff:
        if not backoff.relapses:  # nearly always
            return backoff
        for child in self._records.fleet.of(key.role, State.READY):
            if child.key == key and self._records.memory.slot(child.slot).tasks_ended:
                backoff = backoff.after_work(child.asked_at)
        return backoff

    def show(self, targets: Iterable[Target]) -> None:
        """Tell of how pools stand; nothing is said of them while the fleet stops."""
        records = self._records
        targets = list(targets)
        counts = {target.pool: target.count for target in targets if target.role is Role.WORKER}
        records.gauges.show_workers(counts, waiting_workers(targets, records.backoffs, records.fleet), records.fleet)
        wanted = [target for target in targets if target.count and records.stop.stage is Stage.RUNNING]
        held = held_back(wanted, records.backoffs)
        if held != records.held:
            records.held = held
            self._notice.write(held)
        self._tell(wanted)

    def _tell(self, targets: list[Target]) -> None:
        """Log what has changed for a pool."""
        worst = _worst(targets, self._records.backoffs)
        for name in self._told.keys() - worst.keys():
            del self._told[name]  # nobody wants it any more
        for name, (standing, backoff) in worst.items():
            before = self._told.get(name, Standing.RUNNING)
            if standing is Standing.RUNNING and not backoff.ever_ready:
                continue  # a new generation of it: whether it is any better is to be seen
            self._told[name] = standing
            if standing is not before:
                _say(name, standing, backoff)


def wanted_keys(rollout: Rollout, versions: Versions) -> set[PoolKey]:
    """The pools, each with its generation, of all that is in force or may come into force."""
    wanted = {
        PoolKey(Role.POLLER, POLLERS, versions.pollers),
        PoolKey(Role.EXPORTER, EXPORTER, versions.exporter),
    }
    for generation in rollout.generations:
        wanted.add(PoolKey(Role.ZYGOTE, zygote_pool(generation.code), generation.code))
        pools = pool_sizes(generation.config)
        wanted.update(PoolKey(Role.WORKER, pool, generation.of_pool(pool)) for pool in pools)
    return wanted


def held_back(targets: Iterable[Target], backoffs: Mapping[PoolKey, Backoff]) -> tuple[Held, ...]:
    """The pools that are in back-off, those that need a person first."""
    held = []
    for target in targets:
        backoff = backoffs.get(_key(target), CALM)
        standing = backoff.standing(target.role)
        if standing is not Standing.RUNNING:
            row = Held(target.role, target.pool, standing, backoff.setbacks, backoff.wait_until, backoff.words)
            held.append(row)
    return tuple(sorted(held, key=lambda row: row.state != Standing.FATAL))


def waiting_workers(
    targets: Iterable[Target], backoffs: Mapping[PoolKey, Backoff], children: Iterable[Child]
) -> Counter[tuple[str, str]]:
    """How many workers of each pool are missing and held back, by the state of their pool."""
    live = Counter(child.pool for child in children if child.role is Role.WORKER and child.state in LIVE)
    waiting: Counter[tuple[str, str]] = Counter()
    for target in targets:
        backoff = backoffs.get(_key(target), CALM)
        if target.role is Role.WORKER and backoff.restrains:
            is_fatal = backoff.standing(target.role) is Standing.FATAL
            state = Standing.FATAL if is_fatal else Standing.BACKOFF  # a first failure makes them wait as well
            waiting[target.pool, state.value] = max(0, target.count - live[target.pool])
    return waiting


def _key(target: Target) -> PoolKey:
    return PoolKey(target.role, target.pool, target.generation)


def _worst(targets: Iterable[Target], backoffs: Mapping[PoolKey, Backoff]) -> dict[_Name, tuple[Standing, Backoff]]:
    """By what people call it: while a reload loads there are two zygotes, and the worse is told of."""
    worst: dict[_Name, tuple[Standing, Backoff]] = {}
    for target in targets:
        name = target.role, target.pool if target.role is Role.WORKER else ""
        backoff = backoffs.get(_key(target), CALM)
        standing = backoff.standing(target.role)
        if name not in worst or _GRAVITY.index(standing) > _GRAVITY.index(worst[name][0]):
            worst[name] = standing, backoff
    return worst


def _say(name: _Name, standing: Standing, backoff: Backoff) -> None:
    role, pool = name
    fields = {"child": role.value, "pool": pool} if pool else {"child": role.value}
    if standing is Standing.RUNNING:
        log.logger().info(events.POOL_BACK, **fields)
        return
    say, event = {
        Standing.BACKOFF: (log.logger().warning, events.POOL_BACKOFF),
        Standing.FATAL: (log.logger().error, events.POOL_FATAL),
    }[standing]
    say(event, failures=backoff.setbacks, words=backoff.words, **fields)
