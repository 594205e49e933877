"""What a service manager is sent, in systemd's protocol: ready, reloading, stopping, how it goes, and that we live.

Only changes are sent, but for the sign of life. The messages end with the ticks of the master, so a manager misses them
when the loop is stuck.
"""

import math
from typing import Final

from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK
from rota_supervisor.master.core.state import MasterState, Picture
from rota_supervisor.notice import PoolState

STATUS_SECONDS: Final = 1.0
# While the fleet starts, reloads or stops it has deadlines of its own, which the manager's do not know.
PATIENCE_SECONDS: Final = 30
ASK_PATIENCE_SECONDS: Final = 10.0
EXTEND: Final = f"EXTEND_TIMEOUT_USEC={PATIENCE_SECONDS * 1_000_000}"
ALIVE: Final = "WATCHDOG=1"


def notify(state: MasterState, now: float) -> list[do.Effect]:
    """What there is to tell."""
    if not state.surroundings.has_manager:
        return []
    picture, shown = picture_of(state), state.shown
    messages = news(shown.picture, picture, state.surroundings.pid)
    shown.picture = picture
    if messages:
        shown.patience_at = -math.inf  # what begins now has a time limit of its own
    return [*(do.NotifyManager(message) for message in messages), *_regular_messages(state, now)]


def picture_of(state: MasterState) -> Picture:
    """The fleet's life, as a service manager sees it."""
    return Picture(
        works=state.rollout.current is not None,
        reloads=state.reloads_asked,
        changing=state.rollout.candidate is not None,
        stopping=state.stop.is_asked,
    )


def news(before: Picture, after: Picture, pid: int) -> list[str]:
    """The messages that tell of a change, in order.

    A manager that asked for a reload waits for a RELOADING that is no older than its own request, and then for READY,
    whatever has become of the reload. Both are sent for one that was over before anybody looked.
    """
    if after.stopping:
        return [] if before.stopping else ["STOPPING=1"]
    if not after.works:
        return []
    if not before.works:
        # A manager takes a shell that started us for the master. As process 1 we do not know our number out there.
        return ["READY=1" if pid == 1 else f"READY=1\nMAINPID={pid}"]
    asked = after.reloads > before.reloads
    begun = ["RELOADING=1"] if asked else []
    is_over = not after.changing and (asked or before.changing)
    return [*begun, "READY=1"] if is_over else begun


def _regular_messages(state: MasterState, now: float) -> list[do.Effect]:
    """That the master lives, that it takes longer, and how it goes."""
    shown, seconds = state.shown, state.surroundings.watchdog_seconds
    messages: list[str] = []
    # Half of the silence that the manager bears, less a tick, as the next look may be so far away.
    if seconds and now - shown.alive_at >= max(seconds / 2 - TICK_SECONDS, seconds / 4):
        shown.alive_at = now
        messages.append(ALIVE)
    takes_time = shown.picture.stopping or shown.picture.changing or not shown.picture.works
    if takes_time and now - shown.patience_at >= ASK_PATIENCE_SECONDS:
        shown.patience_at = now
        messages.append(EXTEND)
    if now - shown.status_at >= STATUS_SECONDS:
        before, shown.status, shown.status_at = shown.status, in_words(state), now
        messages += [f"STATUS={shown.status}"] if shown.status != before else []
    return [do.NotifyManager(message, can_wait=True) for message in messages]


def in_words(state: MasterState) -> str:
    """The fleet in one line, for people."""
    rollout = state.rollout
    at_work = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    busy = sum(child.busy for child in at_work)
    if state.stop.is_asked:
        return f"stopping: {len(at_work)} workers left, {busy} busy"
    parts = [f"{len(at_work)} of {sum(state.wanted.counts.values())} workers", f"{busy} busy"]
    parts.append(f"generation {rollout.in_force.number}" if rollout.current is not None else "starting")
    if rollout.current is not None and rollout.candidate is not None:
        parts.append(f"generation {rollout.candidate.number} on its way")
    conditions = {held.state for held in state.held}
    remarks = {
        "quiet": state.quiet.is_asked,
        "backing off": PoolState.BACKOFF in conditions,
        "starts keep failing": PoolState.FATAL in conditions,
        "Redis is away": state.redis_up is False,
    }
    return ", ".join([*parts, *(remark for remark, holds in remarks.items() if holds)])
