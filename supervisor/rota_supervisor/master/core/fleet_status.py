"""The state of the fleet, as shown to people and other programs.

1. The status, for the control socket and the log.
2. The snapshot for the exporter, with everything that only the master knows.
3. The last events.
4. The pools in back-off, for the log and the gauges.

`rota_supervisor.fleet_snapshot` builds the status and the snapshot.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rota.display_text import redact
from rota.protocol.nodes import NodeReport
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota.telemetry.metrics import GaugeDefinition
from rota_supervisor.config.resolution import legacy_sources, pool_sizes
from rota_supervisor.control.port import ControlReply
from rota_supervisor.fleet_snapshot import HeartbeatLimits, Member, Moment, WorkerLoad, node_report, snapshot
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK, LIVE, STARTING, Child, ChildState
from rota_supervisor.master.core.scaling_report import summary_of
from rota_supervisor.master.core.start_backoff import StartBackoff
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import Target, origin_of_count
from rota_supervisor.master_snapshot import (
    FLEET_STATES,
    ChildFacts,
    FleetEvent,
    MasterSnapshot,
    PoolFacts,
    PoolInBackoff,
    PoolState,
    cause_of_death,
    dead_child,
)
from rota_supervisor.server_check import SAFE_POLICY

_ANY: Final = ("0.0.0.0", "[::]")  # noqa: S104 - compared with, not bound
_OF_THIS_MACHINE: Final = ("127.", "[::1]")


def status(state: MasterState, slots: Sequence[Member], at: Moment) -> ControlReply:
    """Return the status of the fleet for the control socket. `slots` has the living processes, as read from their
    slots."""
    limits = HeartbeatLimits(TICK_SECONDS, state.config.limits.beat_seconds)
    seen = snapshot(slots, master_snapshot_of(state), at, limits)
    return {
        **seen.to_json(),
        "redis": redact(state.config.redis_url),
        "listen": state.listen_address,
        "adopts": [source._asdict() for source in legacy_sources(state.config)],
    }


def publish_snapshot(state: MasterState) -> list[do.Effect]:
    """Return the effect that publishes the snapshot, if it has changed since it was last published."""
    before = state.shown.master_snapshot
    state.shown.master_snapshot = master_snapshot_of(state)
    return [do.PublishSnapshot()] if state.shown.master_snapshot != before else []


def master_snapshot_of(state: MasterState) -> MasterSnapshot:
    """Return the part of the fleet's state that only the master knows, for the exporter and the status."""
    rollout = state.rollout
    children = sorted(state.children, key=attrgetter("slot"))
    return MasterSnapshot(
        fleet=state.config.namespace,
        node=state.surroundings.node,
        pid=state.surroundings.pid,
        url=url_of(state.listen_address, state.surroundings.host),
        started_at=state.started_at,
        generation=rollout.in_force.number,
        loading=rollout.latest.number != rollout.in_force.number,
        redis_up=state.redis_up is True,
        redis_refusal=state.redis_refusal,
        redis_round_trip_seconds=state.redis_round_trip_seconds,
        evicts_keys=state.eviction_policy not in ("", SAFE_POLICY),
        pools=_pools(state),
        held=state.held,
        quiet_since=state.quiet_since if state.quiet.is_requested else None,
        closed=state.shown_closed,
        last_reload=state.last_reload,
        last_death=state.last_death,
        # This runs for each child at each tick, so it calls no helper function, which would be slower. `each.state`
        # needs no conversion, because it is already a string.
        children=tuple(
            ChildFacts(
                each.slot,
                each.pool if each.role is Role.WORKER else "",
                each.generation,
                each.state,
                each.ready_at,
            )
            for each in children
        ),
        events=tuple(state.events.last),
    )


def report_of(state: MasterState) -> NodeReport:
    """Return the report about this node that is published with each renewal of its leases."""
    workers = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    loads = [WorkerLoad(len(child.tasks), child.concurrency, child.is_quiet) for child in workers]
    return node_report(master_snapshot_of(state), FLEET_STATES[state.phase], loads)


def url_of(listen: str, host: str) -> str | None:
    """Return the URL at which other machines can reach the listen address of `host`. Returns None if the address is
    empty or can only be reached from `host` itself."""
    address, _, port = listen.rpartition(":")
    if not listen or address.startswith(_OF_THIS_MACHINE):
        return None
    return f"http://{host if address in _ANY else address}:{port}/"


def _pools(state: MasterState) -> tuple[PoolFacts, ...]:
    """Return a description of each pool. The numbers of workers are taken from the gauges of the last tick."""
    generation = state.rollout.in_force
    scaling = state.wanted.scaling
    sizes = pool_sizes(generation.config)
    _, states = state.shown.workers or ({}, Counter())
    workers: dict[str, dict[str, int]] = defaultdict(dict)
    for (pool, label), number in states.items():
        if number:
            workers[pool][label] = number
    return tuple(
        PoolFacts(
            pool,
            count,
            origin_of_count(pool, generation, scaling),
            sizes[pool].least if sizes[pool].is_fixed else str(sizes[pool]),
            generation.pools[pool].settings.concurrency if pool in generation.pools else 1,
            workers[pool],
            summary_of(state, pool, sizes[pool]),
        )
        for pool, count in scaling.counts(sizes).items()
    )


# The log events that are also listed as the last events of the fleet, and their texts

Fields = Mapping[str, Any]

MOST_CHARACTERS: Final = 300  # the maximum length of an event's text, and of each of its fields
MOST_PARTS: Final = 10  # the maximum number of elements in a field that is a list
_LEFT_OUT: Final = frozenset({"stack"})


def _death(fields: Fields) -> str:
    task = f", in task {fields['task']}" if "task" in fields else ""
    return f"{dead_child(fields)}{task}: {cause_of_death(fields)}"


def _starts(fields: Fields) -> str:
    return f"pool {fields['pool']}" if "pool" in fields else f"the {fields['child']}"


def _backoff(fields: Fields) -> str:
    return f"starts of {_starts(fields)} are held back after {fields['failures']} failures: {fields['words']}"


def _redis_lost(fields: Fields) -> str:
    return f"Redis {'refuses' if fields['refused'] else 'does not reply'}: {fields['error']}"


def _fatal(fields: Fields) -> str:
    return f"{_starts(fields)} needs attention after {fields['failures']} failed starts: {fields['words']}"


def _reloaded(fields: Fields) -> str:
    return f"reloaded, generation {fields['generation']}: {', '.join(fields['changes']) or 'nothing changed'}"


def _warned(fields: Fields) -> str:
    return f"{fields['path']}: {fields['warning']}" if "path" in fields else str(fields["warning"])


def _task(what: str) -> Callable[[Fields], str]:
    return lambda fields: f"task {fields.get('task', '')} {fields['task_id']} of queue {fields['queue']} {what}"


_TEXTS: Final[Mapping[str, Callable[[Fields], str]]] = {
    **dict.fromkeys(log_events.DEATHS, _death),
    log_events.WORKER_LOST: "worker {owner} has lost its lease: the tasks that it held run elsewhere".format_map,
    log_events.TASK_RETRIED: _task("exceeded its time limit and will be retried"),
    log_events.TASK_DEAD: lambda fields: f"{_task('is dead')(fields)}: {fields['reason']}",
    log_events.ZYGOTE_FAILED: "{module} cannot be imported: {error}".format_map,
    log_events.ZYGOTE_WARNING: "{warning}".format_map,
    log_events.POOL_BACKOFF: _backoff,
    log_events.POOL_FATAL: _fatal,
    log_events.POOL_BACK: lambda fields: f"{_starts(fields)} starts again",
    log_events.CONFIG_RELOADED: _reloaded,
    log_events.CONFIG_REJECTED: "reload refused: {path}: {error}".format_map,
    log_events.CONFIG_WARNING: _warned,
    log_events.CONDITION_FAILED: "queue {queue} is closed: its condition {condition} fails: {error}".format_map,
    log_events.CONDITION_WORKS: "the condition of queue {queue} works again".format_map,
    log_events.REDIS_LOST: _redis_lost,
    log_events.REDIS_BACK: "Redis replies again".format_map,
    log_events.REDIS_EVICTS_KEYS: "Redis is configured to drop keys when its memory is full: {policy}".format_map,
    log_events.REDIS_KEEPS_KEYS: "Redis is configured to keep all keys again".format_map,
    log_events.FLEET_READY: "the fleet is ready, workers so far: {workers}".format_map,
    log_events.FLEET_SCALED: "pool {pool}: from {before} to {workers} workers".format_map,
    log_events.FLEET_AUTOSCALED: "pool {pool} {before} -> {workers}: {reason}".format_map,
    log_events.FLEET_QUIET: "quiet: this node claims no more tasks".format_map,
    log_events.FLEET_RESUMED: "resumed: workers claim again".format_map,
    log_events.FLEET_REFUSED: "{request} refused: {error}".format_map,
    log_events.FLEET_DRAINING: "the fleet is draining, and has {seconds:g} s to finish".format_map,
    log_events.FLEET_WAITING: "the fleet waits up to {seconds:g} s for Redis before it stops".format_map,
    log_events.FLEET_CALL_FAILED: "{child} in slot {slot} could not be started: {error}".format_map,
}


def note_events(state: MasterState, effects: Iterable[do.Effect], now: float) -> None:
    """Add the log entries among these effects to the list of the fleet's last events. Only the kinds of events that
    have a text for people in `_TEXTS` are listed.

    Children that leave as requested are omitted, because they would fill the list at every reload.
    """
    known = state.events
    for effect in effects:
        if not isinstance(effect, do.WriteLog) or effect.event not in _TEXTS:
            continue
        if effect.event in log_events.DEATHS and effect.level == "info":
            continue
        known.count += 1
        text = _TEXTS[effect.event](effect.fields)[:MOST_CHARACTERS]
        known.last.append(FleetEvent(known.count, now, effect.level, effect.event, text, _bounded(effect.fields)))


def _bounded(fields: Fields) -> dict[str, Any]:
    """Return the fields of an event, shortened for display. The stack is omitted."""
    return {name: _short(value) for name, value in fields.items() if name not in _LEFT_OUT}


def _short(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:MOST_PARTS]]
    return value if value is None or isinstance(value, int | float) else str(value)[:MOST_CHARACTERS]


# Pools whose starts are held back

_BY_SEVERITY: Final = list(PoolState)  # in ascending order, from RUNNING to FATAL
_LOGGED: Final = {
    PoolState.RUNNING: (do.info, log_events.POOL_BACK),
    PoolState.BACKOFF: (do.warning, log_events.POOL_BACKOFF),
    PoolState.FATAL: (do.error, log_events.POOL_FATAL),
}
_STATE_LABELS: Final = {
    **dict.fromkeys(STARTING, "booting"),
    ChildState.READY: "running",
    ChildState.DRAINING: "draining",
    ChildState.KILLED: "draining",
}


class _Pool(NamedTuple):
    """The target of a pool, and the state of its back-off."""

    target: Target
    backoff: StartBackoff
    condition: PoolState


def show_pools(state: MasterState, targets: Iterable[Target]) -> list[do.Effect]:
    """Return the gauges and the log entries that report how the pools have changed since the last tick. While the fleet
    stops, no back-offs are reported, because no child is started."""
    pools = []
    for target in targets:
        backoff = state.backoff_of(target.key)
        pools.append(_Pool(target, backoff, backoff.condition(target.role)))
    wanted = [pool for pool in pools if pool.target.count and not state.stop.is_requested]
    state.held = _held(wanted)
    return [*_gauges(state, pools), *_log(state, wanted)]


def _held(pools: Sequence[_Pool]) -> tuple[PoolInBackoff, ...]:
    """Return the pools in back-off. Pools in state FATAL come first."""
    held = [
        PoolInBackoff(
            target.role, target.pool, condition, backoff.failures_in_a_row, backoff.wait_until, backoff.last_end
        )
        for target, backoff, condition in pools
        if condition is not PoolState.RUNNING
    ]
    return tuple(sorted(held, key=lambda row: row.state != PoolState.FATAL))


def _log(state: MasterState, pools: Sequence[_Pool]) -> list[do.Effect]:
    """Return a log entry for each pool whose back-off state has changed.

    A reload that loads code runs a second zygote, in a pool of its own. Both pools of zygotes count as one pool here,
    which has the worse of their two states.
    """
    worst: dict[tuple[Role, str], _Pool] = {}
    for pool in pools:
        name = pool.target.role, pool.target.pool if pool.target.role is Role.WORKER else ""
        if name not in worst or _BY_SEVERITY.index(pool.condition) > _BY_SEVERITY.index(worst[name].condition):
            worst[name] = pool
    known = state.shown.conditions
    effects = list[do.Effect]()
    for name in known.keys() - worst.keys():
        del known[name]  # The pool is no longer in use.
    for name, (_, backoff, condition) in worst.items():
        before = known.get(name, PoolState.RUNNING)
        if condition is PoolState.RUNNING and not backoff.ever_ready:
            continue  # This is a new generation of the pool, and it is not known yet whether it works.
        known[name] = condition
        if condition is not before:
            effects.append(_logged(*name, condition, backoff))
    return effects


def _logged(role: Role, pool: str, condition: PoolState, backoff: StartBackoff) -> do.Effect:
    log, event = _LOGGED[condition]
    failed = {"failures": backoff.failures_in_a_row, "words": backoff.last_end} if event != log_events.POOL_BACK else {}
    return log(event, **failed, child=role.value, **({"pool": pool} if pool else {}))


# Gauges


def _gauges(state: MasterState, pools: Sequence[_Pool]) -> list[do.Effect]:
    """Return the effects that set each worker gauge that has changed. The gauges of pools that no longer exist are
    removed."""
    workers = [pool for pool in pools if pool.target.role is Role.WORKER]
    counts = {pool.target.pool: pool.target.count for pool in workers}
    states = _workers_by_state(state.children.of(Role.WORKER), workers)
    if (counts, states) == state.shown.workers:  # This is nearly always true.
        return []
    state.shown.workers = (counts, states)
    before = state.shown.gauges
    now: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = dict.fromkeys(before)
    now |= {(m.WORKERS_DESIRED, (pool,)): count for pool, count in counts.items()}
    now |= {(m.WORKERS, (pool, label)): states[pool, label] for pool in counts for label in m.WORKER_STATES}
    now |= {(m.WORKERS, name): number for name, number in states.items() if number}
    state.shown.gauges = now
    return [do.SetGauge(*key, value) for key, value in now.items() if key not in before or before[key] != value]


def _workers_by_state(children: list[Child], pools: Sequence[_Pool]) -> Counter[tuple[str, str]]:
    """Count the workers of each pool by state. If starts are held back, the missing workers are counted under the state
    of the pool, for example `backoff`."""
    states = Counter((child.pool, _label(child)) for child in children if child.state is not ChildState.EXITED)
    live = Counter(child.pool for child in children if child.state in LIVE)
    for target, backoff, condition in pools:
        if backoff.restrains:
            # A single failure is enough, although the status does not show it.
            label = condition if condition is PoolState.FATAL else PoolState.BACKOFF
            states[target.pool, label.value] += max(0, target.count - live[target.pool])
    return states


def _label(child: Child) -> str:
    return "quiet" if child.is_quiet and child.state is ChildState.READY else _STATE_LABELS[child.state]
