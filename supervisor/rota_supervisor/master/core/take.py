"""The master as one function: from what it knows, what happened and the time to what is to be done."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rota.telemetry import log_events as names
from rota.telemetry import metrics as m
from rota_supervisor.master.core import closed, dying, events, fleet_events, living, reloading, requests, ticking
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.status import put_up_news
from rota_supervisor.server_check import SAFE_POLICY


def take(state: MasterState, event: events.Event, now: float) -> list[do.Effect]:
    """Move the state as the event has it, and return what is to be done, in order.

    Nothing but the arguments is read. `now`: seconds of CLOCK_BOOTTIME.
    """
    effects = _TRANSITIONS[type(event)](state, event, now)
    fleet_events.note(state, effects, now)
    return [*effects, *put_up_news(state)] if isinstance(event, events.Ticked) else effects


def _redis_answered(state: MasterState, _event: events.RedisAnswered, _now: float) -> list[do.Effect]:
    was_away, state.redis_up, state.redis_refusal = state.redis_up is False, True, ""
    shown: list[do.Effect] = [do.SetGauge(m.REDIS_UP, (), 1)]
    return [do.info(names.REDIS_BACK, redis=state.surroundings.redis), *shown] if was_away else shown


def _redis_failed(state: MasterState, event: events.RedisFailed, _now: float) -> list[do.Effect]:
    effects: list[do.Effect] = [do.AddToCounter(m.REDIS_ERRORS, (event.reason,))]
    if not event.is_away:  # it answers, though not as we like
        return effects
    refusal = event.error if event.is_reply else ""
    if state.redis_up or (state.redis_up is False and bool(refusal) != bool(state.redis_refusal)):
        told = {"redis": state.surroundings.redis, "reason": event.reason, "error": event.error}
        effects.append(do.error(names.REDIS_LOST, **told, refused=event.is_reply))
    state.redis_up, state.redis_refusal, state.redis_round_trip_seconds = False, refusal, None
    return [*effects, do.SetGauge(m.REDIS_UP, (), 0), do.SetGauge(m.REDIS_ROUND_TRIP, (), None)]


def _round_trip_seen(state: MasterState, event: events.RoundTripSeen, _now: float) -> list[do.Effect]:
    state.redis_round_trip_seconds = event.seconds
    return [do.SetGauge(m.REDIS_ROUND_TRIP, (), event.seconds)]


def _eviction_policy_seen(state: MasterState, event: events.EvictionPolicySeen, _now: float) -> list[do.Effect]:
    """A server that drops keys is refused at the start; it is an alarm when it is configured so later."""
    if event.policy == (state.eviction_policy or SAFE_POLICY):
        return []
    state.eviction_policy = event.policy
    if event.policy == SAFE_POLICY:
        return [do.SetGauge(m.REDIS_EVICTS_KEYS, (), 0), do.info(names.REDIS_KEEPS_KEYS, policy=event.policy)]
    alarm = do.error(names.REDIS_EVICTS_KEYS, policy=event.policy, wanted=SAFE_POLICY)
    return [do.SetGauge(m.REDIS_EVICTS_KEYS, (), 1), alarm]


_TRANSITIONS: Final[Mapping[type, Callable[[MasterState, Any, float], list[do.Effect]]]] = {
    events.Ticked: ticking.ticked,
    events.Requested: requests.requested,
    events.ConfigurationRead: requests.configuration_read,
    events.PlacePrepared: requests.place_prepared,
    events.PlaceTaken: reloading.place_taken,
    events.Looked: living.looked,
    events.Started: living.started,
    events.StackFileMade: living.stack_file_made,
    events.ZygoteSaid: living.zygote_said,
    events.ZygoteGone: living.zygote_gone,
    events.StopSeen: living.stop_seen,
    events.Died: dying.died,
    events.OwnersRegistered: living.owners_registered,
    events.LeasesRenewed: living.leases_renewed,
    events.ClosedSeen: closed.closed_seen,
    events.OwnerRetired: dying.owner_retired,
    events.ClaimHeldUp: living.claim_held_up,
    events.CancelOrdered: living.cancel_ordered,
    events.RedisAnswered: _redis_answered,
    events.RoundTripSeen: _round_trip_seen,
    events.RedisFailed: _redis_failed,
    events.EvictionPolicySeen: _eviction_policy_seen,
}
