"""The scaling rounds of pools with a range in a master's core: the times of the rounds, and the consequences of a
decision.
"""

import math
from collections.abc import Callable

import pytest

from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.config.model import Config, PoolConfig, QueueConfig, ScalingConfig
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core.effects import ExchangeScaling, ScaledPool, SetGauge
from rota_supervisor.master.core.master_events import PoolSeen, ScalingSeen, Ticked
from rota_supervisor.master.core.scaling_backlogs import ROUND_SECONDS
from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, PoolInputs, QueueBacklog
from rota_supervisor.master.core.scaling_rule import Decision
from support.cores import Core

NODE = "node"
IDLE = LoadWindow(60.0, 0, 0.0, 1.0, 0, 0)
BUSY = LoadWindow(60.0, 6000, 600.0, 1.0, 6000, 0)  # 100 tasks of 0.1 s per second
LEAST, MOST = 2, 16


def config_of(workers: int | str = f"{LEAST}..{MOST}") -> Config:
    queues = {"default": QueueConfig(lag_objective_seconds=5.0, lag_target=0.95)}
    return Config(pools={"mail": PoolConfig(workers=workers)}, queues=queues)


@pytest.fixture
def started() -> Callable[[Config], Core]:
    def start(config: Config) -> Core:
        core = Core(config)
        core.state.wanted.rollout = core.state.rollout.promote().commit()
        return core

    return start


@pytest.fixture
def fleet(started: Callable[[Config], Core]) -> Core:
    return started(config_of())


def tick(core: Core, after: float = ROUND_SECONDS) -> tuple[ScaledPool, ...] | None:
    """Let time pass. Return the pools of the round that the tick begins, or None if it begins no round."""
    core.now += after
    rounds = [each for each in core.take(Ticked(math.inf)) if isinstance(each, ExchangeScaling)]
    assert len(rounds) <= 1
    return rounds[0].pools if rounds else None


def load_of(node: str, window: LoadWindow = IDLE, workers: int = LEAST) -> NodeLoad:
    short = window._replace(seconds=2.0, starts=window.starts // 30, occupied_seconds=window.occupied_seconds / 30)
    return NodeLoad(
        node=node,
        short=short,
        long=window,
        workers=workers,
        starting=0,
        free_slots=0 if window.starts else workers,
        running_seconds=0.0,
        running=0,
        held=0,
        concurrency=1,
        least=LEAST,
        most=MOST,
        granted=MOST,
        limited_by="",
        start_seconds=0.3,
        is_blocked=False,
        operator=None,
    )


def leading(load: NodeLoad, ready: int = 0) -> PoolSeen:
    """Return what a master reads in a scaling round if it is the leader, which decides the number of workers. The load
    is that of one node. The pool has a queue with `ready` tasks, or no queue with tasks if `ready` is 0.
    """
    queue = QueueBacklog("default", ready, 0.5, 0, True, 0, math.inf, 5.0, 0.95)
    return PoolSeen(load, NODE, None, PoolInputs("mail", (load,), (queue,) if ready else ()))


def seen(core: Core, pool: PoolSeen) -> None:
    core.take(ScalingSeen({"mail": pool}))


def test_pools_of_a_fixed_size_cause_no_scaling_rounds(started: Callable[[Config], Core]) -> None:
    core = started(config_of(4))
    assert [tick(core) for _ in range(3)] == [None] * 3
    assert core.state.wanted.counts == {"mail": 4}


def test_scaling_rounds_run_twice_a_second_and_never_overlap(fleet: Core) -> None:
    assert tick(fleet) is not None
    assert tick(fleet) is None
    seen(fleet, leading(load_of(NODE)))
    assert tick(fleet) is not None
    fleet.take(ScalingSeen({}, failed=True))
    assert tick(fleet, ROUND_SECONDS / 2) is None
    assert tick(fleet, ROUND_SECONDS / 2) is not None


def test_a_scaling_round_contains_everything_that_a_measurement_needs(fleet: Core) -> None:
    child = fleet.child(Role.WORKER, 8, "mail")
    child.requested_at, child.ready_at = 1.0, 1.25
    [pool] = tick(fleet) or ()
    assert (pool.pool, pool.least, pool.most, pool.granted, pool.operator) == ("mail", LEAST, MOST, MOST, None)
    assert [tuple(each) for each in pool.objectives.values()] == [(5.0, 0.95)]
    assert [(each.slot, each.is_serving, each.is_starting, each.start_seconds) for each in pool.workers] == [
        (8, True, False, 0.25)
    ]


def test_the_leader_adds_workers_at_once_and_publishes_its_decision(fleet: Core) -> None:
    tick(fleet)
    seen(fleet, leading(load_of(NODE, BUSY), ready=500))
    grown = fleet.state.wanted.counts["mail"]
    assert LEAST < grown <= MOST
    event, fields = fleet.logged[-1]
    assert event == log_events.FLEET_AUTOSCALED
    assert (fields["before"], fields["workers"]) == (LEAST, grown)
    assert "500 ready" in fields["reason"]
    [pool] = tick(fleet, 0.0) or ()
    assert pool.publish is not None
    assert pool.publish.shares == {NODE: grown}
    assert SetGauge(m.FLEET_WORKERS_WANTED, ("mail",), pool.publish.unbounded) in fleet.effects


def test_a_node_that_does_not_lead_applies_its_share_of_the_decision(fleet: Core) -> None:
    decision = Decision(9, 9, {"other": 4, NODE: 5}, {}, 9, 9, 9, (), "busy", 0.0, 0.5)
    tick(fleet)
    seen(fleet, PoolSeen(load_of(NODE), "other", decision, None))
    assert fleet.state.wanted.counts == {"mail": 5}
    [pool] = tick(fleet) or ()
    assert pool.publish is None
    assert not [each for each in fleet.done(SetGauge) if each[0] is m.FLEET_WORKERS_WANTED and each.value]


def test_a_failed_scaling_round_does_not_change_the_worker_count(fleet: Core) -> None:
    tick(fleet)
    seen(fleet, leading(load_of(NODE, BUSY), ready=500))
    grown = fleet.state.wanted.counts
    tick(fleet)
    fleet.take(ScalingSeen({}, failed=True))
    assert fleet.state.wanted.counts == grown


def test_an_operators_count_replaces_automatic_scaling_until_set_to_auto(fleet: Core) -> None:
    tick(fleet)
    assert fleet.request(RequestKind.SCALE, ScaleOrder("mail", 3)).result()["origin"] == "operator"
    seen(fleet, leading(load_of(NODE, BUSY)._replace(operator=3), ready=500))
    assert fleet.state.wanted.counts == {"mail": 3}
    [pool] = tick(fleet) or ()
    assert pool.operator == 3
    assert fleet.request(RequestKind.SCALE, ScaleOrder("mail", None)).result()["origin"] == "automatic"
    seen(fleet, leading(load_of(NODE, BUSY, workers=3), ready=500))
    assert fleet.state.wanted.counts["mail"] > 3


@pytest.mark.parametrize("request_", [RequestKind.QUIET, RequestKind.DRAIN])
def test_a_quiet_or_draining_node_takes_no_part_in_automatic_scaling(fleet: Core, request_: RequestKind) -> None:
    fleet.child(Role.WORKER, 8, "mail")
    tick(fleet)
    seen(fleet, leading(load_of(NODE)))
    fleet.request(request_)
    assert tick(fleet) == ()
    fleet.take(ScalingSeen({}))
    assert tick(fleet) is None


def test_the_worker_budget_of_a_node_is_divided_among_its_pools(started: Callable[[Config], Core]) -> None:
    pools = {"mail": PoolConfig(workers="1..16"), "web": PoolConfig(workers="1..16")}
    core = started(Config(pools=pools, scaling=ScalingConfig(budget=6)))
    tick(core)
    busy = load_of(NODE, BUSY, workers=1)._replace(least=1)
    idle = load_of(NODE, workers=1)._replace(least=1)
    core.take(
        ScalingSeen(
            {"mail": leading(busy, ready=500), "web": leading(idle)._replace(inputs=PoolInputs("web", (idle,), ()))}
        )
    )
    granted = {pool.pool: pool.granted for pool in tick(core, ROUND_SECONDS) or ()}
    assert sum(granted.values()) <= 6
    assert granted["mail"] > granted["web"]


def test_after_a_reload_the_worker_count_is_kept_within_the_new_range(fleet: Core) -> None:
    tick(fleet)
    seen(fleet, leading(load_of(NODE, BUSY), ready=500))
    grown = fleet.state.wanted.counts["mail"]
    for workers, expected in (("2..5", 5), (grown, grown), ("1..16", grown)):
        fleet.file = config_of(workers)
        assert fleet.request(RequestKind.RELOAD).result()["result"] == "success"
        assert fleet.state.wanted.counts == {"mail": expected}
