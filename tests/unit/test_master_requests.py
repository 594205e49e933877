"""Requests to the fleet. Signals and the control socket have the same effect, and a leaving fleet refuses requests."""

import pytest

from rota.child.slots import Phase
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.effects import ForkWorker, SetQuiet, WriteReport
from rota_supervisor.master.core.master_events import OwnersRegistered
from rota_supervisor.master.core.targets import Stage
from support.cores import Core

CONFIG = Config(pools={"mail": PoolConfig(workers=2), "web": PoolConfig(workers=1)})


@pytest.fixture
def fleet() -> Core:
    core = Core(CONFIG)
    core.state.wanted.rollout = core.state.rollout.promote().commit()
    return core


def _signal(fleet: Core, request: RequestKind) -> None:
    fleet.request(request, by_signal=True)


def test_ttin_and_ttou_scale_the_first_pool_by_one_worker(fleet: Core) -> None:
    _signal(fleet, RequestKind.MORE)
    assert fleet.state.wanted.counts == {"mail": 3, "web": 1}
    for _ in range(5):  # more often than there are workers; the number never becomes negative
        _signal(fleet, RequestKind.LESS)
    assert fleet.state.wanted.counts == {"mail": 0, "web": 1}


def test_a_scale_request_returns_the_old_and_the_new_worker_count(fleet: Core) -> None:
    pending = fleet.request(RequestKind.SCALE, ScaleOrder("web", 3, is_relative=True))
    assert pending.result() == {"pool": "web", "from": 1, "to": 4, "origin": "operator"}


def test_quiet_and_resume_requests_reach_every_worker(fleet: Core) -> None:
    fleet.child(Role.WORKER, 8, "mail")
    fleet.child(Role.WORKER, 9, "mail", state=ChildState.REQUESTED)
    assert fleet.request(RequestKind.QUIET).result() == {"quiet": True, "changed": True}
    assert fleet.state.phase == Phase.QUIET
    assert fleet.request(RequestKind.QUIET).result() == {"quiet": True, "changed": False}
    assert fleet.request(RequestKind.RESUME).result() == {"quiet": False, "changed": True}
    told = [([child.slot for child in effect.children], effect.quiet) for effect in fleet.done(SetQuiet)]
    assert told == [([8, 9], True), ([8, 9], False)]
    assert fleet.state.phase != Phase.QUIET


def test_a_starting_worker_is_quieted_when_it_is_forked(fleet: Core) -> None:
    fleet.child(Role.ZYGOTE, 2, "generation-1")
    child = fleet.child(Role.WORKER, 8, "mail", state=ChildState.REGISTERING)
    fleet.request(RequestKind.QUIET)
    assert [effect.children for effect in fleet.done(SetQuiet)] == [()]
    fleet.take(OwnersRegistered(((8, child.nonce, "node:8:1"),), 30.0, 0))
    assert [effect.quiet for effect in fleet.done(ForkWorker)] == [True]


TSTP = (RequestKind.QUIET, True)
CONT = (RequestKind.RESUME, True)
QUIET = (RequestKind.QUIET, False)
RESUME = (RequestKind.RESUME, False)


@pytest.mark.parametrize(
    ("requests", "phase"),
    [
        ([TSTP, CONT], Phase.IDLE),
        ([TSTP, TSTP, CONT], Phase.IDLE),
        ([CONT], Phase.IDLE),
        ([TSTP, RESUME], Phase.IDLE),
        ([QUIET, RESUME], Phase.IDLE),
        ([QUIET, CONT], Phase.QUIET),
        ([QUIET, TSTP, CONT], Phase.QUIET),
        ([TSTP, QUIET, CONT], Phase.QUIET),
    ],
)
def test_the_signal_cont_resumes_a_fleet_only_if_tstp_quieted_it(
    fleet: Core, requests: list[tuple[RequestKind, bool]], phase: Phase
) -> None:
    for request, by_signal in requests:
        fleet.request(request, by_signal=by_signal)
    assert fleet.state.phase == phase


def test_a_quiet_fleet_can_be_stopped(fleet: Core) -> None:
    fleet.request(RequestKind.QUIET)
    _signal(fleet, RequestKind.DRAIN)
    assert (fleet.state.stop.stage, fleet.state.phase) == (Stage.WORKERS, Phase.DRAINING)


def test_a_draining_fleet_accepts_only_stop_requests(fleet: Core) -> None:
    fleet.request(RequestKind.DRAIN)
    for request in (RequestKind.RELOAD, RequestKind.RESTART, RequestKind.PREVIEW, RequestKind.QUIET):
        assert "the fleet is draining" in fleet.request(request).refused
    assert "the fleet is draining" in fleet.request(RequestKind.SCALE, ScaleOrder("mail", 9)).refused
    assert fleet.state.wanted.counts == {"mail": 2, "web": 1}
    assert fleet.request(RequestKind.DRAIN).result() == {"at_once": False}
    assert fleet.request(RequestKind.STOP_NOW).result() == {"at_once": True}


@pytest.mark.parametrize("request_", [each for each in RequestKind if each is not RequestKind.SCALE])
def test_no_signal_before_or_during_a_drain_causes_an_exception(fleet: Core, request_: RequestKind) -> None:
    for each in (request_, RequestKind.DRAIN, request_):
        _signal(fleet, each)


def test_a_status_report_can_be_requested_during_a_drain(fleet: Core) -> None:
    _signal(fleet, RequestKind.DRAIN)
    _signal(fleet, RequestKind.REPORT)
    assert fleet.done(WriteReport) == [WriteReport()]


def test_the_result_of_the_last_reload_is_kept_for_the_status(fleet: Core) -> None:
    fleet.file = Config(pools={**CONFIG.pools, "web": PoolConfig(workers=4)})
    fleet.request(RequestKind.RELOAD)
    kept = fleet.state.last_reload
    assert kept is not None
    assert (kept["result"], kept["changes"]) == ("success", ["counts"])


def test_an_operators_count_survives_reloads_until_the_file_changes_it(fleet: Core) -> None:
    fleet.request(RequestKind.SCALE, ScaleOrder("mail", 5))
    fleet.file = Config(pools={**CONFIG.pools, "web": PoolConfig(workers=4)})
    _signal(fleet, RequestKind.RELOAD)
    assert fleet.state.wanted.counts == {"mail": 5, "web": 4}
    fleet.file = Config(pools={**CONFIG.pools, "mail": PoolConfig(workers=3)})
    _signal(fleet, RequestKind.RELOAD)
    assert fleet.state.wanted.counts == {"mail": 3, "web": 1}
