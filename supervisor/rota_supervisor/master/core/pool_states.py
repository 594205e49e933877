"""Pools whose starts are held back, as people see them: in the log, the gauges, and the notice for the exporter."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rota.telemetry import log_events as names
from rota.telemetry import metric_labels
from rota.telemetry import metrics as m
from rota.telemetry.metrics import GaugeDefinition
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import LIVE, STARTING, Child, ChildState, PoolKey
from rota_supervisor.master.core.start_backoff import StartBackoff
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import Target, WantedFleet
from rota_supervisor.notice import Held, PoolState

_GRAVITY: Final = list(PoolState)  # from RUNNING to FATAL
_LOGGED: Final = {
    PoolState.RUNNING: (do.info, names.POOL_BACK),
    PoolState.BACKOFF: (do.warning, names.POOL_BACKOFF),
    PoolState.FATAL: (do.error, names.POOL_FATAL),
}
_STATE_LABELS: Final = {
    **dict.fromkeys(STARTING, "booting"),
    ChildState.READY: "running",
    ChildState.DRAINING: "draining",
    ChildState.KILLED: "draining",
}


# The back-offs between deaths


def calm_down(state: MasterState, now: float) -> None:
    """Drop back-offs of generations no longer used; in the others forget early deaths and relapses that are over."""
    for key, backoff in list(state.backoffs.items()):
        if _is_wanted(key, state.wanted):
            state.backoffs[key] = _proven(state, key, backoff).calmed(now, state.config.restarts)
        else:
            del state.backoffs[key]


def _is_wanted(key: PoolKey, wanted: WantedFleet) -> bool:
    """Whether that generation of a pool is in force or may come into force."""
    generations = wanted.rollout.generations
    match key.role:
        case Role.POLLER:
            return key.generation == wanted.versions.pollers
        case Role.EXPORTER:
            return key.generation == wanted.versions.exporter
        case Role.ZYGOTE:
            return any(key.generation == each.code for each in generations)
        case _:
            return any(key.generation == each.of_pool(key.pool) for each in generations if key.pool in each.pools)


def _proven(state: MasterState, key: PoolKey, backoff: StartBackoff) -> StartBackoff:
    if not backoff.relapses:  # nearly always
        return backoff
    for child in state.children.of(key.role, ChildState.READY):
        if child.key == key and child.has_worked:
            backoff = backoff.after_work(child.asked_at)
    return backoff


# What is shown of them


class _Pool(NamedTuple):
    """A pool as it should be, and how its starts go."""

    target: Target
    backoff: StartBackoff
    condition: PoolState


def show(state: MasterState, targets: Iterable[Target]) -> list[do.Effect]:
    """What has changed of the pools since it was shown last; nothing is said of them while the fleet stops."""
    pools = []
    for target in targets:
        backoff = state.backoff_of(target.key)
        pools.append(_Pool(target, backoff, backoff.condition(target.role)))
    wanted = [pool for pool in pools if pool.target.count and not state.stop.is_asked]
    state.held = _held(wanted)
    return [*_gauges(state, pools), *_log(state, wanted)]


def _held(pools: Sequence[_Pool]) -> tuple[Held, ...]:
    """The pools that are in back-off, those that need a person first."""
    held = [
        Held(target.role, target.pool, condition, backoff.failures_in_a_row, backoff.wait_until, backoff.words)
        for target, backoff, condition in pools
        if condition is not PoolState.RUNNING
    ]
    return tuple(sorted(held, key=lambda row: row.state != PoolState.FATAL))


def _log(state: MasterState, pools: Sequence[_Pool]) -> list[do.Effect]:
    """Say what has changed for a pool. Two zygotes, as there are while a reload loads, are one to people: the worse."""
    worst: dict[tuple[Role, str], _Pool] = {}
    for pool in pools:
        name = pool.target.role, pool.target.pool if pool.target.role is Role.WORKER else ""
        if name not in worst or _GRAVITY.index(pool.condition) > _GRAVITY.index(worst[name].condition):
            worst[name] = pool
    known, effects = state.shown.conditions, list[do.Effect]()
    for name in known.keys() - worst.keys():
        del known[name]  # nobody wants it any more
    for name, (_, backoff, condition) in worst.items():
        before = known.get(name, PoolState.RUNNING)
        if condition is PoolState.RUNNING and not backoff.ever_ready:
            continue  # a new generation of it: whether it is any better is to be seen
        known[name] = condition
        if condition is not before:
            effects.append(_logged(*name, condition, backoff))
    return effects


def _logged(role: Role, pool: str, condition: PoolState, backoff: StartBackoff) -> do.Effect:
    say, event = _LOGGED[condition]
    failed = {"failures": backoff.failures_in_a_row, "words": backoff.words} if event != names.POOL_BACK else {}
    return say(event, **failed, child=role.value, **({"pool": pool} if pool else {}))


# Gauges


def _gauges(state: MasterState, pools: Sequence[_Pool]) -> list[do.Effect]:
    """The numbers of workers, those of them that have changed; None for those of a pool that is gone."""
    workers = [pool for pool in pools if pool.target.role is Role.WORKER]
    counts = {pool.target.pool: pool.target.count for pool in workers}
    states = _workers_by_state(state.children.of(Role.WORKER), workers)
    if (counts, states) == state.shown.workers:  # nearly always
        return []
    state.shown.workers, before = (counts, states), state.shown.gauges
    now: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = dict.fromkeys(before)
    now |= {(m.WORKERS_DESIRED, (pool,)): count for pool, count in counts.items()}
    now |= {(m.WORKERS, (pool, label)): states[pool, label] for pool in counts for label in metric_labels.WORKER_STATES}
    now |= {(m.WORKERS, name): number for name, number in states.items() if number}
    state.shown.gauges = now
    return [do.SetGauge(*key, value) for key, value in now.items() if key not in before or before[key] != value]


def _workers_by_state(children: list[Child], pools: Sequence[_Pool]) -> Counter[tuple[str, str]]:
    """How many workers each pool has; those that are missing and held back are counted by the state of their pool."""
    states = Counter((child.pool, _label(child)) for child in children if child.state is not ChildState.EXITED)
    live = Counter(child.pool for child in children if child.state in LIVE)
    for target, backoff, condition in pools:
        if backoff.restrains:
            label = condition if condition is PoolState.FATAL else PoolState.BACKOFF  # after a first failure as well
            states[target.pool, label.value] += max(0, target.count - live[target.pool])
    return states


def _label(child: Child) -> str:
    return "quiet" if child.is_quiet and child.state is ChildState.READY else _STATE_LABELS[child.state]
