"""The master as one function, which takes the state, an event and the time, and returns effects."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rota_supervisor.master.core import (
    child_events,
    child_exit,
    fleet_status,
    master_events,
    redis_events,
    reload_steps,
    requests,
    scaling_rounds,
    tick,
)
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.state import MasterState


def take(state: MasterState, event: master_events.Event, now: float) -> list[do.Effect]:
    """Update the state as the event requires, and return the effects to perform, in order.

    The function reads only its arguments. `now` is the time in seconds of CLOCK_BOOTTIME.
    """
    effects = HANDLERS[type(event)](state, event, now)
    fleet_status.note_events(state, effects, now)
    return [*effects, *fleet_status.publish_snapshot(state)] if isinstance(event, master_events.Ticked) else effects


HANDLERS: Final[Mapping[type, Callable[[MasterState, Any, float], list[do.Effect]]]] = {
    master_events.Ticked: tick.ticked,
    master_events.Requested: requests.requested,
    master_events.ConfigurationRead: requests.configuration_read,
    master_events.AddressPrepared: requests.address_prepared,
    master_events.ListeningAt: reload_steps.listening_at,
    master_events.SlotsRead: child_events.slots_read,
    master_events.Started: child_events.started,
    master_events.StackFileMade: child_events.stack_file_made,
    master_events.ZygoteReported: child_events.zygote_reported,
    master_events.ZygoteGone: child_events.zygote_gone,
    master_events.StopSeen: child_events.stop_seen,
    master_events.Died: child_exit.died,
    master_events.OwnersRegistered: child_events.owners_registered,
    master_events.LeasesRenewed: redis_events.leases_renewed,
    master_events.ClosedSeen: redis_events.closed_seen,
    master_events.ScalingSeen: scaling_rounds.scaling_seen,
    master_events.OwnerReaped: child_exit.owner_reaped,
    master_events.ClaimHeldUp: child_events.claim_held_up,
    master_events.CancelOrdered: child_events.cancel_ordered,
    master_events.RedisReplied: redis_events.redis_replied,
    master_events.RoundTripSeen: redis_events.round_trip_seen,
    master_events.RedisFailed: redis_events.redis_failed,
    master_events.EvictionPolicySeen: redis_events.eviction_policy_seen,
}
