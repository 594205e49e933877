"""The stages in which a fleet stops, while Redis is available and while Redis is unreachable."""

import math
from itertools import count

import pytest

from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Children, ChildState
from rota_supervisor.master.core.targets import (
    AWAY_SECONDS,
    LEAVE_SECONDS,
    REAP_SECONDS,
    Stage,
    Stop,
)

DRAIN = 30.0
NEVER = math.inf
_slots = count(8)


def fleet_of(*workers: tuple[ChildState, bool]) -> Children:
    """Return a fleet with one worker for each pair. A pair has the state of the worker, and whether it holds tasks."""
    children = Children()
    for state, has_work in workers:
        child = children.add(Role.WORKER, "mail", 1, next(_slots), 0.0)
        child.has_work = has_work
        child.state = state
    return children


def stop_at(now: float) -> Stop:
    return Stop().after_request(now, DRAIN, at_once=False)


def test_a_second_stop_request_never_delays_the_first() -> None:
    first = stop_at(10)
    assert first.after_request(20, DRAIN, at_once=False) is first
    at_once = first.after_request(20, DRAIN, at_once=True)
    assert (at_once.stage, at_once.leave_by) == (Stage.AT_ONCE, 20 + LEAVE_SECONDS)
    assert at_once.after_request(30, DRAIN, at_once=False) is at_once


def test_an_unreachable_server_does_not_stop_a_running_fleet() -> None:
    assert Stop().advance(fleet_of(), 100, silent_since=0) == Stop()


@pytest.mark.parametrize(
    ("worker", "now", "silent_since", "stage"),
    [
        # A worker that does not exit is killed first. The stage changes only after the kill.
        ((ChildState.DRAINING, False), 100.0, 0.0, Stage.WORKERS),
        ((ChildState.EXITED, False), 1.0, NEVER, Stage.WORKERS),  # Redis replies, so the owner will be reaped
        ((ChildState.EXITED, False), 1.0, 1.0 - AWAY_SECONDS, Stage.WORKERS),  # Redis may still reply
        ((ChildState.EXITED, False), 1.0, 0.9 - AWAY_SECONDS, Stage.REST),
        ((ChildState.EXITED, True), 1.0, 0.0, Stage.WORKERS),
        ((ChildState.EXITED, True), DRAIN + REAP_SECONDS, 0.0, Stage.WORKERS),
        ((ChildState.EXITED, True), DRAIN + REAP_SECONDS + 0.1, 0.0, Stage.REST),
        ((ChildState.EXITED, False), DRAIN + REAP_SECONDS + 0.1, NEVER, Stage.REST),
    ],
)
def test_a_stop_waits_for_live_workers_and_held_tasks(
    worker: tuple[ChildState, bool], now: float, silent_since: float, stage: Stage
) -> None:
    assert stop_at(0).advance(fleet_of(worker), now, silent_since).stage is stage


def test_an_idle_fleet_stops_within_two_seconds_without_redis() -> None:
    living = fleet_of((ChildState.DRAINING, False))
    dead = fleet_of((ChildState.EXITED, False))
    stop = stop_at(0).advance(living, AWAY_SECONDS + 0.05, silent_since=0)
    assert stop.ends_by(living) <= 1.6
    stop = stop.advance(dead, stop.idle_leave_by, silent_since=0)
    assert stop.stage is Stage.REST
    assert stop.idle_leave_by <= 1.6
    assert stop.is_over(dead, stop.since)


def test_a_busy_fleet_stops_within_five_seconds_of_the_drain() -> None:
    fleet = fleet_of((ChildState.EXITED, True), (ChildState.DRAINING, False))
    stop = stop_at(0).advance(fleet, 1.0, silent_since=0)
    assert stop.leave_by == DRAIN
    assert DRAIN + REAP_SECONDS < stop.ends_by(fleet) < DRAIN + 5


def test_a_stop_waits_for_tasks_again_once_redis_is_back() -> None:
    fleet = fleet_of((ChildState.DRAINING, False))
    away = stop_at(0).advance(fleet, 1.0, silent_since=0)
    assert away.is_without_redis
    assert not away.advance(fleet, 1.1, silent_since=NEVER).is_without_redis


@pytest.mark.parametrize(("has_work", "over"), [(True, False), (False, True)])
def test_an_immediate_stop_without_redis_waits_only_for_held_tasks(*, has_work: bool, over: bool) -> None:
    fleet = fleet_of((ChildState.EXITED, has_work))
    stop = Stop().after_request(0, DRAIN, at_once=True).advance(fleet, 1.0, silent_since=0)
    assert stop.is_over(fleet, 1.0) is over
    assert stop.is_over(fleet, LEAVE_SECONDS + 0.1)
