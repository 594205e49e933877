"""The leases of living workers: when they are renewed, and which are lost; and claims given back in part."""

from typing import Final

from rota.protocol.outcome import settlements_in
from rota.protocol.wire import Packed
from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import events, settings
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.state import MasterState

_RENEWALS_A_LEASE: Final = 2  # at least, of whatever lease an owner has: its worker's fence goes up after nine tenths
_TRIES_A_PERIOD: Final = 5  # after a renewal that failed, the next is not left for a whole period
_LONGEST_PAUSE_SECONDS: Final = 1.0


def renew_when_due(state: MasterState, now: float) -> list[do.Effect]:
    """Renew the leases of all living workers, each for as long as its worker was told."""
    leases, lease = state.leases, state.config.lease
    if leases.is_renewing or now < leases.due_at:
        return []
    held = tuple(do.HeldLease(child.owner, child.lease_seconds, child.slot, child.nonce) for child in _living(state))
    leases.is_renewing, leases.is_urgent = True, False
    leases.seconds = min([lease.renew_seconds, *(each.lease_seconds / _RENEWALS_A_LEASE for each in held)])
    return [do.RenewLeases(held, tuple(state.taken_queues), lease.seconds)]


def _living(state: MasterState) -> list[Child]:
    """The workers whose leases count."""
    workers = state.children.of(Role.WORKER)
    return [child for child in workers if child.owner and child.state is not ChildState.EXITED]


def hurry(state: MasterState) -> None:
    """Renew at the next tick."""
    state.leases.is_urgent = True
    state.leases.due_at = 0.0


def hurry_for(state: MasterState, lease_seconds: float) -> None:
    """Hurry if the next renewal may have been planned too late for a lease of so many seconds: a reload may have made
    leases shorter."""
    if lease_seconds / _RENEWALS_A_LEASE < state.leases.seconds:
        hurry(state)


def leases_renewed(state: MasterState, event: events.LeasesRenewed, now: float) -> list[do.Effect]:
    """A round of renewals is over."""
    leases = state.leases
    if event.failed:
        leases.seconds = min(_LONGEST_PAUSE_SECONDS, state.config.lease.renew_seconds / _TRIES_A_PERIOD)
    leases.due_at = now if leases.is_urgent else now + leases.seconds
    leases.is_renewing = False
    # Nothing is said of an owner whose worker died while the renewal was on its way.
    living = {child.owner for child in _living(state)} if event.lost else set()
    lost = [owner for owner in event.lost if owner in living and owner not in leases.known_lost]
    leases.known_lost.update(lost)
    effects: list[do.Effect] = []
    for owner in lost:
        effects += [do.AddToCounter(m.LEASES_LOST), do.error(names.WORKER_LOST, owner=owner)]
    return effects


def claim_held_up(state: MasterState, event: events.ClaimHeldUp, _now: float) -> list[do.Effect]:
    """Give back what waits behind a task that takes long: once for each task."""
    child, held_up = state.children.get(event.slot, event.nonce), event.held_up
    mark = event.nonce, held_up.number
    if child is None or state.recalled.get(event.slot) == mark:
        return []
    state.recalled[event.slot] = mark
    finished = settlements_in(*held_up.outcomes)
    return [do.Recall(child.ref, child.owner, held_up.number, held_up.task.entry, finished, tiers_of(state, child))]


def tiers_of(state: MasterState, child: Child) -> Packed:
    """The queues that a worker takes from, by tier; none when its pool is no more."""
    pool = state.settings_of(child)
    return settings.NO_TIERS if pool is None else pool.tiers
