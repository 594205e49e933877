"""What people are shown of a fleet: its status, for the control socket and for the log; and the notice for the
exporter, of what the master alone knows. Both are made of `rota_supervisor.fleet_snapshot`."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from rota.protocol.nodes import NodeReport
from rota_supervisor.config.resolution import classic_sources, pool_sizes
from rota_supervisor.control.port import Answer
from rota_supervisor.fleet_members import Member, Patience
from rota_supervisor.fleet_snapshot import Moment, WorkerLoad, node_report, snapshot
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.targets import origin_of_count
from rota_supervisor.notice import FLEET_STATES, ChildNotice, Notice, PoolNotice
from rota_supervisor.server_check import SAFE_POLICY

_ANY: Final = ("0.0.0.0", "[::]")  # noqa: S104 - compared with, not bound
_OF_THIS_MACHINE: Final = ("127.", "[::1]")


def status(state: MasterState, slots: Sequence[Member], at: Moment) -> Answer:
    """Return the fleet, whose living processes show `slots`."""
    patience = Patience(TICK_SECONDS, state.config.limits.beat_seconds)
    seen = snapshot(slots, notice_of(state), at, patience)
    return {
        **seen.to_json(),
        "redis": state.surroundings.redis,
        "listen": state.place,
        "adopts": [source._asdict() for source in classic_sources(state.config)],
    }


def put_up_news(state: MasterState) -> list[do.Effect]:
    """The notice is put up anew when it says something else."""
    before, state.shown.notice = state.shown.notice, notice_of(state)
    return [do.PutUpNotice()] if state.shown.notice != before else []


def notice_of(state: MasterState) -> Notice:
    """Return what the master alone knows."""
    rollout = state.rollout
    children = sorted(state.children, key=attrgetter("slot"))
    return Notice(
        fleet=state.config.namespace,
        node=state.surroundings.node,
        pid=state.surroundings.pid,
        url=url_of(state.place, state.surroundings.host),
        started_at=state.started_at,
        generation=rollout.in_force.number,
        loading=rollout.latest.number != rollout.in_force.number,
        redis_up=state.redis_up is True,
        redis_refusal=state.redis_refusal,
        redis_round_trip_seconds=state.redis_round_trip_seconds,
        evicts_keys=state.eviction_policy not in ("", SAFE_POLICY),
        pools=_pools(state),
        held=state.held,
        quiet_since=state.quiet_since if state.quiet.is_asked else None,
        closed=state.shown_closed,
        last_reload=state.last_reload,
        last_death=state.last_death,
        # At each tick for each child: a state is a string already, and no call is made.
        children=tuple(
            ChildNotice(
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
    """Return what a heartbeat says of the node, as far as the master knows."""
    workers = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    loads = [WorkerLoad(len(child.tasks), child.places, child.is_quiet) for child in workers]
    return node_report(notice_of(state), FLEET_STATES[state.phase], loads)


def url_of(place: str, host: str) -> str | None:
    """Return where other machines find what listens at a place of this one, `host`; None for nowhere."""
    address, _, port = place.rpartition(":")
    if not place or address.startswith(_OF_THIS_MACHINE):
        return None
    return f"http://{host if address in _ANY else address}:{port}/"


def _pools(state: MasterState) -> tuple[PoolNotice, ...]:
    """Return what is to be known of each pool. How many workers it has is what its gauges said at the last tick."""
    generation, scaling = state.rollout.in_force, state.wanted.scaling
    sizes, (_, states) = pool_sizes(generation.config), state.shown.workers or ({}, Counter())
    workers: dict[str, dict[str, int]] = defaultdict(dict)
    for (pool, label), number in states.items():
        if number:
            workers[pool][label] = number
    return tuple(
        PoolNotice(
            pool,
            count,
            origin_of_count(pool, generation, scaling),
            sizes[pool],
            generation.pools[pool].settings.concurrency if pool in generation.pools else 1,
            workers[pool],
        )
        for pool, count in scaling.counts(sizes).items()
    )
