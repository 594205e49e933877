"""Leases: the times of renewals, the reports of lost leases, and claims of which some tasks are given back."""

import pytest

from rota.child.slot_record import HeldUp, TaskInSlot
from rota.telemetry import log_events
from rota_supervisor.config.model import Config, LeaseConfig, PoolConfig
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import RenewLeases, ReturnPrefetched
from rota_supervisor.master.core.master_events import ClaimHeldUp, LeasesRenewed, OwnersRegistered, Ticked
from rota_supervisor.master.core.state import Quiet
from rota_supervisor.master.core.tick import wake_at
from support.cores import Core

LEASE = LeaseConfig(20.0, 5.0)


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), workers=1, lease=LEASE))


def _worker(core: Core, lease_seconds: float = 20.0) -> Child:
    child = core.child(Role.WORKER, 8)
    child.owner = "node:8:1"
    child.lease_seconds = lease_seconds
    return child


def _renewals(core: Core, now: float) -> list[RenewLeases]:
    core.now = now
    return [effect for effect in core.take(Ticked()) if isinstance(effect, RenewLeases)]


def test_the_heartbeat_announces_the_served_queues_and_patterns() -> None:
    core = Core(Config(imports=("code",), workers=1, tiers=(("mail",), ("tenant-*", "default"))))
    (renewal,) = _renewals(core, 0.0)
    assert renewal.queues == ("mail", "tenant-*", "default")
    assert [domain.name for domain in renewal.announced.domains] == ["default,tenant-*"]


def test_the_heartbeat_announces_the_tiers_of_pools_that_claim_tasks() -> None:
    pools = {
        "mail": PoolConfig(workers=2, queues=("mail",)),
        "all": PoolConfig(workers=1),
        "off": PoolConfig(workers=0),
    }
    core = Core(Config(imports=("code",), pools=pools, tiers=(("mail",), ("default",))))
    (renewal,) = _renewals(core, 0.0)
    served = {pool: [domain.name for domain in tiers] for pool, tiers in renewal.pools.items()}
    assert served == {"mail": ["mail"], "all": ["mail", "default"]}
    core.take(LeasesRenewed())
    core.state.quiet = Quiet.BY_PERSON
    (renewal,) = _renewals(core, 100.0)
    assert renewal.pools == {}


def test_leases_are_renewed_one_call_at_a_time_as_configured(core: Core) -> None:
    _worker(core)
    (first,) = _renewals(core, 0.0)
    assert [(held.owner, held.lease_seconds) for held in first.held] == [("node:8:1", 20.0)]
    assert _renewals(core, 1.0) == []  # the previous renewal has no reply yet
    core.take(LeasesRenewed())
    assert wake_at(core.state) <= 5.0
    assert _renewals(core, 4.9) == []
    assert len(_renewals(core, 5.0)) == 1


def test_a_slow_lease_renewal_is_followed_by_the_next_at_once(core: Core) -> None:
    _worker(core)
    _renewals(core, 0.0)
    assert _renewals(core, 7.0) == []
    core.take(LeasesRenewed())
    assert wake_at(core.state) == 7.0
    assert len(_renewals(core, 7.0)) == 1


def test_a_failed_lease_renewal_is_repeated_soon(core: Core) -> None:
    _worker(core)
    _renewals(core, 0.0)
    core.now = 8.0
    core.take(LeasesRenewed(failed=True))
    assert _renewals(core, 8.9) == []
    assert len(_renewals(core, 9.0)) == 1


def test_a_shorter_lease_makes_its_next_renewal_earlier(core: Core) -> None:
    _renewals(core, 0.0)
    core.take(LeasesRenewed())
    core.take(OwnersRegistered((), 2.0, 0))
    assert len(_renewals(core, 0.1)) == 1


def test_the_lease_of_a_dead_worker_is_not_renewed(core: Core) -> None:
    _worker(core).state = ChildState.EXITED
    (renewal,) = _renewals(core, 0.0)
    assert renewal.held == ()


def test_a_lost_lease_is_logged_once_while_its_worker_lives(core: Core) -> None:
    _worker(core)
    for _ in range(2):
        core.take(LeasesRenewed(lost=("node:8:1", "node:9:2")))
    assert [(event, fields["owner"]) for event, fields in core.logged] == [(log_events.WORKER_LOST, "node:8:1")]


def test_prefetched_tasks_behind_a_long_task_are_returned_only_once(core: Core) -> None:
    child = _worker(core)
    task = TaskInSlot(b"id mail i 1 1 0 0 0 0 -", "send", 1, 0)
    for number in (7, 7, 9):
        core.take(ClaimHeldUp(8, child.nonce, HeldUp(task._replace(number=number), (0, b""))))
    # A claim by the next process in the slot must not count.
    core.take(ClaimHeldUp(8, child.nonce + 1, HeldUp(task._replace(number=11), (0, b""))))
    assert [(request.owner, request.task) for request in core.done(ReturnPrefetched)] == [
        ("node:8:1", task._replace(number=7)),
        ("node:8:1", task._replace(number=9)),
    ]
