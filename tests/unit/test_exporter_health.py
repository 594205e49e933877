"""The liveness and readiness checks of the exporter, which are based on the slots."""

import dataclasses
from typing import Any

import pytest

from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase
from rota_supervisor.fleet_snapshot import Health, HeartbeatLimits, Member, MemberTask, liveness, readiness, serves
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import MasterSnapshot, PoolInBackoff

MASTER = Member(0, Role.MASTER, 1, Phase.IDLE, 0.5)
POLLER = Member(4, Role.POLLER, 2, Phase.IDLE, 0.5)
WORKER = Member(8, Role.WORKER, 3, Phase.IDLE, 0.5)
HEARTBEAT_LIMITS = HeartbeatLimits(tick_seconds=1.0, beat_seconds=30.0)
NOW = 100.0
TASK = TaskInSlot(b"id images i 1 1 0 0 0 0 -", "resize", 1, 2)


def verdict_on(*fleet: Member, held: tuple[PoolInBackoff, ...] = (), redis_up: bool = True) -> Health:
    return readiness(fleet, MasterSnapshot(held=held, redis_up=redis_up), NOW, HEARTBEAT_LIMITS)


def faults(*fleet: Member, redis_up: bool = True) -> list[str]:
    """Return the names of the checks that fail for this fleet."""
    verdict = verdict_on(*fleet, redis_up=redis_up)
    assert verdict.ok == all(check.ok for check in verdict.checks)
    return [check.name for check in verdict.checks if not check.ok]


def running(left_seconds: float) -> MemberTask:
    return MemberTask(TASK, 1.0, left_seconds)


def changed(member: Member, **changes: Any) -> Member:
    return dataclasses.replace(member, **changes)


@pytest.mark.parametrize(("age", "ok"), [(0.0, True), (2.9, True), (3.0, False), (100.0, False)])
def test_a_master_is_alive_with_a_heartbeat_within_three_ticks(age: float, ok: bool) -> None:
    assert liveness((changed(MASTER, heartbeat_age_seconds=age),), HEARTBEAT_LIMITS.tick_seconds).ok is ok


def test_liveness_fails_if_there_is_no_master() -> None:
    assert not liveness((WORKER, POLLER), HEARTBEAT_LIMITS.tick_seconds).ok


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.DRAINING, Phase.QUIET])
def test_a_booting_or_draining_master_is_alive_but_not_ready(phase: Phase) -> None:
    master = changed(MASTER, phase=phase)
    assert liveness((master, POLLER, WORKER), HEARTBEAT_LIMITS.tick_seconds).ok
    assert faults(master, POLLER, WORKER) == ["master_serves"]


def test_readiness_requires_a_worker_a_poller_and_redis() -> None:
    assert faults(MASTER, POLLER, WORKER) == []
    assert faults(MASTER, POLLER) == ["worker_serves"]
    assert faults(MASTER, WORKER) == ["poller_serves"]
    assert faults(MASTER, POLLER, WORKER, redis_up=False) == ["redis"]
    assert faults() == ["master_beats", "master_serves", "worker_serves", "poller_serves"]


def test_a_pool_in_back_off_makes_the_fleet_not_ready() -> None:
    held = PoolInBackoff("worker", "mail", "fatal", 12, 105.0, "exited with code 3 before it was ready")
    found = verdict_on(MASTER, POLLER, WORKER, held=(held,))
    assert [check.seen for check in found.checks if not check.ok] == [
        (
            "pool mail is in fatal: 12 failures in a row, next try in 5 s; last error: exited with code 3 before it "
            "was ready"
        )
    ]


def test_readiness_requires_only_one_working_worker() -> None:
    hung = changed(WORKER, slot=9, heartbeat_age_seconds=1000.0)
    assert faults(MASTER, POLLER, hung, WORKER, changed(WORKER, slot=10, phase=Phase.BOOTING)) == []
    assert faults(MASTER, POLLER, hung) == ["worker_serves"]


@pytest.mark.parametrize(
    ("member", "ok"),
    [
        (WORKER, True),
        (changed(WORKER, heartbeat_age_seconds=30.0), True),
        (changed(WORKER, heartbeat_age_seconds=30.1), False),
        (changed(WORKER, phase=Phase.BUSY, tasks=(running(3000.0),), heartbeat_age_seconds=600.0), True),
        (changed(WORKER, phase=Phase.BUSY, tasks=(running(float("inf")),), heartbeat_age_seconds=600.0), True),
        (changed(WORKER, phase=Phase.BUSY, tasks=(running(-1.0),), heartbeat_age_seconds=600.0), False),
        (changed(WORKER, phase=Phase.BUSY, tasks=(running(9.0),), concurrency=2, heartbeat_age_seconds=600.0), False),
        (changed(WORKER, phase=Phase.BUSY, tasks=(running(-1.0),), concurrency=2, heartbeat_age_seconds=0.2), True),
        (changed(WORKER, phase=Phase.DRAINING), False),
        (changed(WORKER, phase=Phase.QUIET), False),
        (changed(WORKER, phase=Phase.EMPTY), False),
    ],
)
def test_busy_workers_are_judged_by_deadline_and_idle_ones_by_heartbeat(member: Member, ok: bool) -> None:
    assert serves(member, 30.0) is ok


def test_each_health_check_describes_what_it_observed() -> None:
    verdict = verdict_on(changed(MASTER, phase=Phase.DRAINING), redis_up=False)
    assert [check.seen for check in verdict.checks] == [
        "last heartbeat 0.5 s ago, limit 3 s",
        "the master is draining",
        "there is no worker",
        "there is no poller",
        "the master does not reach Redis",
        "no pool is in back-off",
    ]
