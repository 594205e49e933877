"""The master's exchange with Redis: leases, the declarations of this node, closed queues, and whether Redis replies.

The schedules of a candidate are declared when the candidate is promoted. If the candidate is refused after that, the
schedules of the previous generation are declared again.
"""

from collections.abc import Mapping
from typing import Final

from rota.display_text import redact
from rota.protocol.nodes import Announced
from rota.protocol.schedule_store import DeclaredSchedule
from rota.protocol.tiers import Domain
from rota.protocol.views import ClosedQueue
from rota.schedules.schedule import encode_schedule
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.config.model import ConditionConfig, Config
from rota_supervisor.config.resolution import pattern_domains, queue_shares, schedules_in_force, signing_settings
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import master_events
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.fleet_status import report_of
from rota_supervisor.master.core.generations import Generation
from rota_supervisor.master.core.master_events import ClosedSeen
from rota_supervisor.master.core.state import Declarations, MasterState
from rota_supervisor.server_check import SAFE_POLICY

# The minimum number of renewals during the lease of any owner. One renewal would be too few, because a worker fences
# itself when nine tenths of its lease have passed.
_RENEWALS_A_LEASE: Final = 2
_TRIES_A_PERIOD: Final = 5  # A failed renewal is repeated after a fifth of the usual period.
_LONGEST_PAUSE_SECONDS: Final = 1.0
CLOSED_A_READING: Final = 100  # A reply with this many queues may be incomplete: see conditions.lua.


# Leases and claims


def renew_when_due(state: MasterState, now: float) -> list[do.Effect]:
    """Renew the leases of all living workers. Each lease is renewed for the duration that its worker was given.

    If this node has something new to declare, the renewal is due at once.
    """
    leases = state.leases
    lease = state.config.lease
    if note_declarations(state, now):
        leases.hurry()
    if leases.is_renewing or now < leases.due_at:
        return []
    held = tuple(do.HeldLease(child.owner, child.lease_seconds, child.slot, child.nonce) for child in _living(state))
    leases.is_renewing = True
    leases.is_urgent = False
    leases.started_at = now
    leases.seconds = min([lease.renew_seconds, *(each.lease_seconds / _RENEWALS_A_LEASE for each in held)])
    queues = tuple(state.taken_queues)
    pools = _served_tiers(state)
    declared = declared_schedules(state, now)
    is_settled = state.rollout.candidate is None
    report = report_of(state)
    signing = signing_settings(state.config)
    announced = (*_announced(state.config), declared, is_settled, report, state.declarations.tasks, signing)
    return [do.RenewLeases(held, queues, pools, lease.seconds, *announced)]


def _served_tiers(state: MasterState) -> dict[str, tuple[Domain, ...]]:
    """Return the queues, by tier, of each pool whose workers claim tasks. While this node is quiet, no worker claims
    tasks, and the result is empty."""
    served = state.rollout.in_force.pools
    counts = {} if state.quiet.is_requested else state.wanted.counts
    return {pool: served[pool].settings.tiers for pool, count in counts.items() if count}


def _announced(config: Config) -> tuple[Announced, Mapping[str, ConditionConfig]]:
    events = config.events.max_length if config.events.enabled else 0
    announced = Announced(config.ended.keep, events, queue_shares(config), pattern_domains(config))
    return announced, config.conditions


def _living(state: MasterState) -> list[Child]:
    """Return the workers that have an owner and have not exited. Their leases are renewed."""
    workers = state.children.of(Role.WORKER)
    return [child for child in workers if child.owner and child.state is not ChildState.EXITED]


def hurry_for(state: MasterState, lease_seconds: float) -> None:
    """Make a renewal due at the next tick if the planned renewal may be too late for a lease of this duration.

    This can happen after a reload that made leases shorter.
    """
    if lease_seconds / _RENEWALS_A_LEASE < state.leases.seconds:
        state.leases.hurry()


def leases_renewed(state: MasterState, event: master_events.LeasesRenewed, now: float) -> list[do.Effect]:
    """Handle the end of a round of renewals.

    The time until the next round is counted from the start of this one, because a lease runs from the moment when its
    renewal was sent. Over a slow link, the other calls of a round can take longer than the time between two rounds.
    """
    leases = state.leases
    since = state.leases.started_at
    if event.failed:
        leases.seconds = min(_LONGEST_PAUSE_SECONDS, state.config.lease.renew_seconds / _TRIES_A_PERIOD)
        since = now
    leases.due_at = now if leases.is_urgent else max(now, since + leases.seconds)
    leases.is_renewing = False
    # A lost lease is not reported if its worker died during the renewal.
    living = {child.owner for child in _living(state)} if event.lost else set()
    lost = [owner for owner in event.lost if owner in living and owner not in leases.known_lost]
    leases.known_lost.update(lost)
    effects: list[do.Effect] = []
    for owner in lost:
        effects += [do.AddToCounter(m.LEASES_LOST), do.error(log_events.WORKER_LOST, owner=owner)]
    return effects


# The declarations of this node: the tasks and schedules of the code in force, and the schedules of its configuration


def note_declarations(state: MasterState, now: float) -> bool:
    """Store the schedules and tasks that the generation in force declares, if its code is loaded. Returns whether they
    have changed."""
    generation = state.rollout.in_force
    before = state.declarations
    if before.generation is generation or not state.code_of(generation.code).is_loaded:
        return False
    texts = _declared_texts(state, generation)
    sign_with = generation.config.signing.sign_with
    known = before.texts if before.sign_with == sign_with else {}  # a schedule signed with another key counts as new
    since = {name: before.since[name] if known.get(name) == text else now for name, text in texts.items()}
    tasks = tuple(sorted(state.code_of(generation.code).tasks))
    state.declarations = Declarations(generation, texts, since, tasks, sign_with)
    return texts != before.texts or tasks != (before.tasks or ())


def _declared_texts(state: MasterState, generation: Generation) -> Mapping[str, bytes]:
    code = state.code_of(generation.code)
    of_file = schedules_in_force(generation.config, code.tasks)
    of_code = {name: text.encode() for name, text in code.schedules.items()}
    return {**of_code, **{schedule.name: encode_schedule(schedule) for schedule in of_file}}


def declared_schedules(state: MasterState, now: float) -> tuple[DeclaredSchedule, ...]:
    """Return the schedules that are declared with each renewal of the leases."""
    known = state.declarations
    return tuple(DeclaredSchedule(name, text, now - known.since[name]) for name, text in known.texts.items())


# Closed queues, and the quiet state of this node


def closed_seen(state: MasterState, event: ClosedSeen, now: float) -> list[do.Effect]:
    """Handle a reading of the closed queues. Conditions that could not be evaluated are counted and reported, and the
    gauge of this node's quiet time is updated."""
    known = state.closed_by_fault
    errors = _condition_errors(state, event.closed)
    effects: list[do.Effect] = [do.AddToCounter(m.CONDITION_ERRORS, (queue,)) for queue in errors]
    for queue, row in errors.items():
        if queue not in known or known[queue].error != row.error:
            effects.append(do.error(log_events.CONDITION_FAILED, queue=queue, condition=row.closed_by, error=row.error))
    unseen = {queue: row for queue, row in known.items() if queue not in errors}
    state.closed = event.closed
    state.closed_at = now
    state.closed_by_fault = errors
    if len(event.closed) < CLOSED_A_READING:
        effects += [do.info(log_events.CONDITION_WORKS, queue=queue) for queue in unseen]
    else:  # Only some of the queues were read.
        state.closed_by_fault = {**unseen, **errors}
    return [*effects, do.SetGauge(m.QUIET_AGE, (), state.quiet_seconds(now))]


def _condition_errors(state: MasterState, closed: tuple[ClosedQueue, ...]) -> Mapping[str, ClosedQueue]:
    """Return the queues that are closed because their condition could not be evaluated, by queue name or pattern. Only
    one queue is returned for each pattern, because a pattern may match thousands of queues."""
    return {state.label_of_queue(row.queue): row for row in closed if row.error}


# Whether Redis replies, and how fast


def redis_replied(state: MasterState, _event: master_events.RedisReplied, _now: float) -> list[do.Effect]:
    was_away = state.redis_up is False
    state.redis_up = True
    state.redis_refusal = ""
    shown: list[do.Effect] = [do.SetGauge(m.REDIS_UP, (), 1)]
    return [do.info(log_events.REDIS_BACK, redis=redact(state.config.redis_url)), *shown] if was_away else shown


def redis_failed(state: MasterState, event: master_events.RedisFailed, _now: float) -> list[do.Effect]:
    effects: list[do.Effect] = [do.AddToCounter(m.REDIS_ERRORS, (event.reason,))]
    if not event.is_away:  # Redis replies, although with an error.
        return effects
    refusal = event.error if event.is_reply else ""
    if state.redis_up or (state.redis_up is False and bool(refusal) != bool(state.redis_refusal)):
        fields = {"redis": redact(state.config.redis_url), "reason": event.reason, "error": event.error}
        effects.append(do.error(log_events.REDIS_LOST, **fields, refused=event.is_reply))
    state.redis_up = False
    state.redis_refusal = refusal
    state.redis_round_trip_seconds = None
    return [*effects, do.SetGauge(m.REDIS_UP, (), 0), do.SetGauge(m.REDIS_ROUND_TRIP, (), None)]


def round_trip_seen(state: MasterState, event: master_events.RoundTripSeen, _now: float) -> list[do.Effect]:
    state.redis_round_trip_seconds = event.seconds
    return [do.SetGauge(m.REDIS_ROUND_TRIP, (), event.seconds)]


def eviction_policy_seen(state: MasterState, event: master_events.EvictionPolicySeen, _now: float) -> list[do.Effect]:
    """Report a change of the server's eviction policy.

    The master does not start if the server's policy drops keys. If the policy changes to such a policy later, this is
    reported as an error.
    """
    if event.policy == (state.eviction_policy or SAFE_POLICY):
        return []
    state.eviction_policy = event.policy
    if event.policy == SAFE_POLICY:
        return [do.SetGauge(m.REDIS_EVICTS_KEYS, (), 0), do.info(log_events.REDIS_KEEPS_KEYS, policy=event.policy)]
    alarm = do.error(log_events.REDIS_EVICTS_KEYS, policy=event.policy, wanted=SAFE_POLICY)
    return [do.SetGauge(m.REDIS_EVICTS_KEYS, (), 1), alarm]
