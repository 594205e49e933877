"""Tell the service manager what has changed since it was told last."""

from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import AT_WORK
from rota_supervisor.master.core.effects import Effect, NotifyManager
from rota_supervisor.master.core.manager import (
    ALIVE,
    ASK_PATIENCE_SECONDS,
    EXTEND,
    STATUS_SECONDS,
    Figures,
    Picture,
    in_words,
    news,
    status_message,
)
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.notice import Condition


def notify(state: MasterState, now: float) -> list[Effect]:
    """What there is to tell."""
    if not state.surroundings.has_manager:
        return []
    picture, shown = picture_of(state), state.shown
    messages = news(shown.picture, picture, state.surroundings.pid)
    shown.picture = picture
    if messages:
        shown.patience_at = float("-inf")  # what begins now has a time limit of its own
    effects: list[Effect] = [NotifyManager(message) for message in messages]
    return [*effects, *_show_life(state, now), *_ask_patience(state, picture, now), *_show_status(state, picture, now)]


def picture_of(state: MasterState) -> Picture:
    """The fleet's life, as a service manager sees it."""
    rollout = state.rollout
    return Picture(
        works=rollout.current is not None,
        reloads=state.reloads_asked,
        changing=rollout.candidate is not None,
        stopping=state.stop.is_asked,
    )


def _show_life(state: MasterState, now: float) -> list[Effect]:
    seconds = state.surroundings.watchdog_seconds
    # Half of the silence that the manager bears, less a tick, as the next look may be so far away.
    if not seconds or now - state.shown.alive_at < max(seconds / 2 - TICK_SECONDS, seconds / 4):
        return []
    state.shown.alive_at = now
    return [NotifyManager(ALIVE, can_wait=True)]


def _ask_patience(state: MasterState, picture: Picture, now: float) -> list[Effect]:
    if not picture.takes_time or now - state.shown.patience_at < ASK_PATIENCE_SECONDS:
        return []
    state.shown.patience_at = now
    return [NotifyManager(EXTEND, can_wait=True)]


def _show_status(state: MasterState, picture: Picture, now: float) -> list[Effect]:
    if now - state.shown.status_at < STATUS_SECONDS:
        return []
    state.shown.status_at = now
    status = in_words(picture, _figures(state), _remarks(state))
    if status == state.shown.status:
        return []
    state.shown.status = status
    return [NotifyManager(status_message(status), can_wait=True)]


def _figures(state: MasterState) -> Figures:
    rollout = state.rollout
    at_work = [child for child in state.children.of(Role.WORKER) if child.state in AT_WORK]
    return Figures(
        desired=sum(state.wanted.counts.values()),
        ready=len(at_work),
        busy=sum(child.busy for child in at_work),
        generation=rollout.in_force.number,
        loading=rollout.candidate.number if rollout.candidate is not None else 0,
    )


def _remarks(state: MasterState) -> list[str]:
    conditions = {held.state for held in state.shown.held}
    remarks = {
        "quiet": state.quiet.is_asked,
        "backing off": Condition.BACKOFF in conditions,
        "starts keep failing": Condition.FATAL in conditions,
        "Redis is away": state.redis_up is False,
    }
    return [remark for remark, holds in remarks.items() if holds]
