"""The state of pools in the gauges, the snapshot and the log."""

import pytest

from rota.child.slots import Phase
from rota.telemetry import log_events
from rota_supervisor.config.model import Config, PoolConfig, Restarts
from rota_supervisor.control.port import RequestKind
from rota_supervisor.layout import Role
from rota_supervisor.master.core import fleet_status
from rota_supervisor.master.core.children import Child, ChildState, PoolKey
from rota_supervisor.master.core.effects import Effect, SetGauge, WriteLog
from rota_supervisor.master.core.master_events import SlotReading, SlotsRead
from rota_supervisor.master.core.start_backoff import BUDGETS, ChildEnd, StartBackoff
from rota_supervisor.master.core.targets import Stage, Stop, Target, Versions, desired_of
from rota_supervisor.master.core.tick import recover_backoffs
from support.cores import Core

CONFIG = Config(pools={"mail": PoolConfig(workers=4)})
LIMITS = Restarts()
KEY = PoolKey(Role.WORKER, "mail", 1)
MAIL = Target(Role.WORKER, "mail", 4, 1)
POLLERS = Target(Role.POLLER, "pollers", 1, 1)


def failed(times: int, backoff: StartBackoff = StartBackoff(ever_ready=True)) -> StartBackoff:  # noqa: B008 - frozen
    for number in range(times):
        now = number * 100.0
        backoff = backoff.after_end(ChildEnd(now, now, text=f"exit code {number}"), LIMITS)
    return backoff


@pytest.fixture
def core() -> Core:
    return Core(CONFIG)


def shown(core: Core, *targets: Target) -> list[Effect]:
    """Return the effects that show the state of these pools. Check that a repetition has no effects."""
    effects = fleet_status.show_pools(core.state, targets)
    assert fleet_status.show_pools(core.state, targets) == []
    return effects


def event_names(effects: list[Effect]) -> list[str]:
    return [effect.event for effect in effects if isinstance(effect, WriteLog)]


def held(core: Core, *targets: Target) -> list[tuple[str, int]]:
    """Return the pools whose starts are delayed, each with its number of consecutive failures."""
    shown(core, *targets)
    return [(row.pool, row.failures) for row in core.state.held]


def gauges(effects: list[Effect]) -> dict[tuple[str, ...], float | None]:
    return {(effect.gauge.name, *effect.labels): effect.value for effect in effects if isinstance(effect, SetGauge)}


def test_pools_in_back_off_are_listed_with_fatal_ones_first(core: Core) -> None:
    core.state.backoffs = {KEY: failed(2), PoolKey(Role.POLLER, "pollers", 1): failed(BUDGETS[Role.POLLER])}
    shown(core, MAIL, POLLERS, Target(Role.EXPORTER, "exporter", 1, 1))
    assert [(row.role, row.state, row.failures, row.last_error) for row in core.state.held] == [
        ("poller", "fatal", BUDGETS[Role.POLLER], f"exit code {BUDGETS[Role.POLLER] - 1}"),
        ("worker", "backoff", 2, "exit code 1"),
    ]


def test_missing_workers_of_a_pool_in_back_off_are_counted_as_such(core: Core) -> None:
    core.child(Role.WORKER, 8, "mail")
    core.child(Role.WORKER, 9, "mail", state=ChildState.EXITED)
    core.state.backoffs = {KEY: failed(1)}
    assert gauges(shown(core, MAIL))["rota_workers", "mail", "backoff"] == 3
    core.state.backoffs = {KEY: failed(BUDGETS[Role.WORKER])}
    changed = gauges(shown(core, MAIL))
    assert (changed["rota_workers", "mail", "backoff"], changed["rota_workers", "mail", "fatal"]) == (0, 3)
    core.state.backoffs = {}
    assert gauges(shown(core, MAIL)) == {("rota_workers", "mail", "fatal"): 0}


def test_gauges_of_workers_are_removed_with_their_pool(core: Core) -> None:
    core.child(Role.WORKER, 8, "mail")
    values = gauges(shown(core, MAIL))
    assert values["rota_workers_desired", "mail"] == 4
    assert values["rota_workers", "mail", "running"] == 1
    core.state.children.forget(ended(core))
    gone = gauges(shown(core))
    assert gone.keys() == values.keys()
    assert set(gone.values()) == {None}


def ended(core: Core) -> Child:
    child = core.state.children.in_slot(8)
    child.state = ChildState.EXITED
    return child


def test_each_change_of_pool_state_is_logged_once(core: Core) -> None:
    effects: list[Effect] = []
    for times in (0, 1, 2, 3, BUDGETS[Role.WORKER], BUDGETS[Role.WORKER] + 1, 0):
        core.state.backoffs = {KEY: failed(times)}
        effects += shown(core, MAIL)
    assert event_names(effects) == [log_events.POOL_BACKOFF, log_events.POOL_FATAL, log_events.POOL_BACK]
    first = next(effect for effect in effects if isinstance(effect, WriteLog))
    assert first.fields == {"failures": 2, "words": "exit code 1", "child": "worker", "pool": "mail"}


def test_a_new_generation_ends_the_back_off_once_it_works(core: Core) -> None:
    core.state.backoffs = {KEY: failed(3)}
    effects = shown(core, MAIL)
    renewed = Target(Role.WORKER, "mail", 4, 2)
    effects += shown(core, renewed)
    assert event_names(effects) == [log_events.POOL_BACKOFF]
    core.state.backoffs[PoolKey(Role.WORKER, "mail", 2)] = StartBackoff().after_ready(0.0)
    effects += shown(core, renewed)
    assert event_names(effects) == [log_events.POOL_BACKOFF, log_events.POOL_BACK]


def test_an_empty_pool_and_a_stopping_fleet_report_no_back_off(core: Core) -> None:
    core.state.backoffs = {KEY: failed(3)}
    assert held(core, MAIL) == [("mail", 3)]
    assert held(core, Target(Role.WORKER, "mail", 0, 1)) == []
    assert held(core, MAIL) == [("mail", 3)]
    core.state.stop = Stop(Stage.WORKERS, 0.0, 1.0)
    assert held(core, MAIL) == []
    assert log_events.POOL_BACK not in [event for event, _ in core.logged]


def test_a_reload_resets_back_offs_except_that_of_code_not_yet_loaded(core: Core) -> None:
    never = StartBackoff()
    pollers = PoolKey(Role.POLLER, "pollers", 1)
    zygote = PoolKey(Role.ZYGOTE, "generation-2", 2)
    core.state.backoffs = {KEY: failed(4), pollers: failed(4, never), zygote: failed(4, never)}
    core.request(RequestKind.RELOAD)
    assert {key.role: backoff.failures for key, backoff in core.state.backoffs.items()} == {
        Role.WORKER: 0,
        Role.POLLER: 0,
        Role.ZYGOTE: 4,
    }


def test_a_finished_task_of_a_new_worker_clears_early_exits(core: Core) -> None:
    core.state.backoffs = {KEY: StartBackoff(early_exits=20, early_exit_at=5.0, ever_ready=True)}
    core.now = 6.0
    child = core.child(Role.WORKER, 8, "mail")
    recover_backoffs(core.state, 7.0)
    assert core.state.backoffs[KEY].early_exits == 20, "a worker runs its first task"
    core.take(SlotsRead((SlotReading(8, child.nonce, Phase.IDLE, (), 0, has_worked=True),)))
    recover_backoffs(core.state, 7.0)
    assert core.state.backoffs[KEY].early_exits == 0


def test_back_offs_of_removed_pools_are_forgotten(core: Core) -> None:
    gone = PoolKey(Role.WORKER, "gone", 1)
    before = PoolKey(Role.POLLER, "pollers", 1)
    core.state.backoffs = {KEY: failed(3), gone: failed(20, StartBackoff()), before: failed(20)}
    core.state.wanted.versions = Versions(pollers=2)
    recover_backoffs(core.state, 7.0)
    assert core.state.backoffs.keys() == {KEY}


def test_back_offs_of_all_desired_pools_are_kept(core: Core) -> None:
    desired = desired_of(core.state.wanted, Stop(), {})
    keys = {PoolKey(target.role, target.pool, target.generation) for target in desired.targets}
    assert {key.role for key in keys} == {Role.ZYGOTE, Role.WORKER, Role.POLLER, Role.EXPORTER}
    core.state.backoffs = dict.fromkeys(keys, failed(3))
    recover_backoffs(core.state, 7.0)
    assert core.state.backoffs.keys() == keys
