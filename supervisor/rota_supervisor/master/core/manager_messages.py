"""The messages to a service manager in systemd's protocol: ready, reloading, stopping, status and watchdog.

The watchdog message and requests for more time are repeated. All others are sent only when something has changed. The
master sends the messages in its ticks, so the messages stop if its loop hangs.
"""

import math
from typing import Final

from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK
from rota_supervisor.master.core.state import MasterState, ServiceState
from rota_supervisor.master_snapshot import PoolState

STATUS_SECONDS: Final = 1.0
# The master sets its own deadlines for a start, a reload and a stop of the fleet. The manager does not know these
# deadlines, so the master repeatedly requests more time from it.
EXTENSION_SECONDS: Final = 30
EXTEND_EVERY_SECONDS: Final = 10.0
EXTEND: Final = f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}"
ALIVE: Final = "WATCHDOG=1"


def notify(state: MasterState, now: float) -> list[do.Effect]:
    """Return the messages to the service manager that are due now."""
    if not state.surroundings.has_manager:
        return []
    service_state = service_state_of(state)
    shown = state.shown
    messages = changes_between(shown.service_state, service_state, state.surroundings.pid)
    shown.service_state = service_state
    if messages:
        shown.extended_at = -math.inf  # The manager applies a separate time limit to the new phase.
    return [*(do.NotifyManager(message) for message in messages), *_regular_messages(state, now)]


def service_state_of(state: MasterState) -> ServiceState:
    """Return the part of the fleet's state that a service manager needs."""
    return ServiceState(
        works=state.rollout.current is not None,
        reloads=state.reloads_requested,
        changing=state.rollout.candidate is not None,
        stopping=state.stop.is_requested,
    )


def changes_between(before: ServiceState, after: ServiceState, pid: int) -> list[str]:
    """Return the messages that report a change, in order.

    A manager that has requested a reload waits for a RELOADING that was sent after its request, and then for READY,
    whether or not the reload succeeded. Both messages are sent even if the reload ended before this check.
    """
    if after.stopping:
        return [] if before.stopping else ["STOPPING=1"]
    if not after.works:
        return []
    if not before.works:
        # The pid is sent because a manager that started the master through a shell takes the shell for the master. A
        # master that is process 1 of a container does not know its pid outside the container, so it sends none.
        return ["READY=1" if pid == 1 else f"READY=1\nMAINPID={pid}"]
    was_requested = after.reloads > before.reloads
    reloading = ["RELOADING=1"] if was_requested else []
    is_over = not after.changing and (was_requested or before.changing)
    return [*reloading, "READY=1"] if is_over else reloading


def _regular_messages(state: MasterState, now: float) -> list[do.Effect]:
    """Return the messages that are due at intervals: the watchdog message, the request for more time, and the
    status."""
    shown = state.shown
    seconds = state.surroundings.watchdog_seconds
    messages: list[str] = []
    # The message is sent after half of the silence that the manager allows, minus a tick, because the next check may be
    # one tick late.
    if seconds and now - shown.alive_at >= max(seconds / 2 - TICK_SECONDS, seconds / 4):
        shown.alive_at = now
        messages.append(ALIVE)
    takes_time = shown.service_state.stopping or shown.service_state.changing or not shown.service_state.works
    if takes_time and now - shown.extended_at >= EXTEND_EVERY_SECONDS:
        shown.extended_at = now
        messages.append(EXTEND)
    if now - shown.status_at >= STATUS_SECONDS:
        before = shown.status
        shown.status = status_line(state)
        shown.status_at = now
        messages += [f"STATUS={shown.status}"] if shown.status != before else []
    return [do.NotifyManager(message, can_wait=True) for message in messages]


def status_line(state: MasterState) -> str:
    """Return the state of the fleet in one line, for example "2 of 2 workers, 1 busy, generation 1"."""
    rollout = state.rollout
    at_work = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    busy = sum(child.busy for child in at_work)
    if state.stop.is_requested:
        return f"stopping: {len(at_work)} workers left, {busy} busy"
    parts = [f"{len(at_work)} of {sum(state.wanted.counts.values())} workers", f"{busy} busy"]
    parts.append(f"generation {rollout.in_force.number}" if rollout.current is not None else "starting")
    if rollout.current is not None and rollout.candidate is not None:
        parts.append(f"generation {rollout.candidate.number} being rolled out")
    conditions = {held.state for held in state.held}
    remarks = {
        "quiet": state.quiet.is_requested,
        "backing off": PoolState.BACKOFF in conditions,
        "starts keep failing": PoolState.FATAL in conditions,
        "Redis is away": state.redis_up is False,
    }
    return ", ".join([*parts, *(remark for remark, holds in remarks.items() if holds)])
