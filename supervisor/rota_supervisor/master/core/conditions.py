"""Pools whose starts are held back, as people see them: in the log, the gauges, and the notice for the exporter."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.backoff import CALM, Condition, StartBackoff
from rota_supervisor.master.core.children import LIVE, Child, ChildState, PoolKey
from rota_supervisor.master.core.desired import Target
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import WantedFleet
from rota_supervisor.notice import Held

_GRAVITY: Final = list(Condition)  # from RUNNING to FATAL
_PoolName = tuple[Role, str]
_Backoffs = Mapping[PoolKey, StartBackoff]
_Gauges = dict[tuple[m.GaugeDefinition, tuple[str, ...]], float | None]
_STATE_LABELS: Final = {
    ChildState.REGISTERING: "booting",
    ChildState.ASKED: "booting",
    ChildState.BOOTING: "booting",
    ChildState.READY: "running",
    ChildState.DRAINING: "draining",
    ChildState.KILLED: "draining",
}


# The back-offs between deaths


def calm_down(state: MasterState, now: float) -> None:
    """Forget what is over: what nobody wants any more, early deaths, and relapses once something works."""
    for key, backoff in list(state.backoffs.items()):
        if _is_wanted(key, state.wanted):
            state.backoffs[key] = _proven(state, key, backoff).calmed(now, state.config.restarts)
        else:
            del state.backoffs[key]


def _proven(state: MasterState, key: PoolKey, backoff: StartBackoff) -> StartBackoff:
    if not backoff.relapses:  # nearly always
        return backoff
    for child in state.children.of(key.role, ChildState.READY):
        if child.key == key and child.has_worked:
            backoff = backoff.after_work(child.asked_at)
    return backoff


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


# What is shown of them


def show(state: MasterState, targets: Iterable[Target]) -> list[Effect]:
    """What has changed of the pools since it was shown last; nothing is said of them while the fleet stops."""
    targets = list(targets)
    wanted = [target for target in targets if target.count and not state.stop.is_asked]
    effects, held = _gauges(state, targets), held_back(wanted, state.backoffs)
    if held != state.shown.held:
        state.shown.held = held
        effects.append(do.PutUpNotice(held))
    return [*effects, *_log(state, wanted)]


def _judged(targets: Iterable[Target], backoffs: _Backoffs) -> Iterator[tuple[Target, StartBackoff, Condition]]:
    """Each pool with its back-off, and what that means for it."""
    for target in targets:
        backoff = backoffs.get(PoolKey(target.role, target.pool, target.generation), CALM)
        yield target, backoff, backoff.condition(target.role)


def held_back(targets: Iterable[Target], backoffs: _Backoffs) -> tuple[Held, ...]:
    """The pools that are in back-off, those that need a person first."""
    held = [
        Held(target.role, target.pool, condition, backoff.failures_in_a_row, backoff.wait_until, backoff.words)
        for target, backoff, condition in _judged(targets, backoffs)
        if condition is not Condition.RUNNING
    ]
    return tuple(sorted(held, key=lambda row: row.state != Condition.FATAL))


def _log(state: MasterState, targets: list[Target]) -> list[Effect]:
    """Say what has changed for a pool."""
    worst, known = _worst(targets, state.backoffs), state.shown.conditions
    for name in known.keys() - worst.keys():
        del known[name]  # nobody wants it any more
    effects: list[Effect] = []
    for name, (condition, backoff) in worst.items():
        before = known.get(name, Condition.RUNNING)
        if condition is Condition.RUNNING and not backoff.ever_ready:
            continue  # a new generation of it: whether it is any better is to be seen
        known[name] = condition
        if condition is not before:
            effects.append(_said(name, condition, backoff))
    return effects


def _worst(targets: Iterable[Target], backoffs: _Backoffs) -> dict[_PoolName, tuple[Condition, StartBackoff]]:
    """By what people call it: while a reload loads there are two zygotes, and the worse is told of."""
    worst: dict[_PoolName, tuple[Condition, StartBackoff]] = {}
    for target, backoff, condition in _judged(targets, backoffs):
        name = target.role, target.pool if target.role is Role.WORKER else ""
        if name not in worst or _GRAVITY.index(condition) > _GRAVITY.index(worst[name][0]):
            worst[name] = condition, backoff
    return worst


def _said(name: _PoolName, condition: Condition, backoff: StartBackoff) -> Effect:
    role, pool = name
    fields = {"child": role.value, "pool": pool} if pool else {"child": role.value}
    if condition is Condition.RUNNING:
        return do.info(names.POOL_BACK, **fields)
    failed = {"failures": backoff.failures_in_a_row, "words": backoff.words}
    if condition is Condition.BACKOFF:
        return do.warning(names.POOL_BACKOFF, **failed, **fields)
    return do.error(names.POOL_FATAL, **failed, **fields)


# Gauges


def _gauges(state: MasterState, targets: list[Target]) -> list[Effect]:
    """The numbers of workers, those of them that have changed; None for those of a pool that is gone."""
    counts = {target.pool: target.count for target in targets if target.role is Role.WORKER}
    states = _workers_by_state(state, targets)
    if (counts, states) == state.shown.workers:  # nearly always
        return []
    state.shown.workers, before = (counts, states), state.shown.gauges
    now: _Gauges = dict.fromkeys(before)
    now |= {(m.WORKERS_DESIRED, (pool,)): count for pool, count in counts.items()}
    now |= {(m.WORKERS, (pool, label)): states[pool, label] for pool in counts for label in m.WORKER_STATES}
    now |= {(m.WORKERS, name): number for name, number in states.items() if number}
    state.shown.gauges = now
    return [do.SetGauge(*key, value) for key, value in now.items() if key not in before or before[key] != value]


def _workers_by_state(state: MasterState, targets: list[Target]) -> Counter[tuple[str, str]]:
    workers = [child for child in state.children.of(Role.WORKER) if child.state is not ChildState.EXITED]
    states = Counter((child.pool, _label(child)) for child in workers)
    states.update(waiting_workers(targets, state.backoffs, workers))
    return states


def _label(child: Child) -> str:
    return "quiet" if child.is_quiet and child.state is ChildState.READY else _STATE_LABELS[child.state]


def waiting_workers(
    targets: Iterable[Target], backoffs: _Backoffs, children: Iterable[Child]
) -> Counter[tuple[str, str]]:
    """How many workers of each pool are missing and held back, by the state of their pool."""
    live = Counter(child.pool for child in children if child.role is Role.WORKER and child.state in LIVE)
    waiting: Counter[tuple[str, str]] = Counter()
    for target, backoff, condition in _judged(targets, backoffs):
        if target.role is Role.WORKER and backoff.restrains:
            label = condition if condition is Condition.FATAL else Condition.BACKOFF  # after a first failure as well
            waiting[target.pool, label.value] = max(0, target.count - live[target.pool])
    return waiting
