"""How pools stand, as the gauges, the notice and the log tell it."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import CurrentTask
from rota.child.slots import MASTER_SLOT
from rota.telemetry import events, log
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config, PoolConfig, Restarts
from rota_supervisor.layout import SLOTS, Role
from rota_supervisor.master.children.child import Child, PoolKey, State
from rota_supervisor.master.planning.backoff import BUDGETS, Backoff, End
from rota_supervisor.master.planning.desired import Target
from rota_supervisor.master.planning.scaling import Scaling
from rota_supervisor.master.planning.targets import Stage, Stop, Versions, desired_of
from rota_supervisor.master.records import Records
from rota_supervisor.master.reload.reloading import Reloading
from rota_supervisor.master.shown.standings import Standings, held_back, waiting_workers
from rota_supervisor.notice import Notice
from simulation.hands import NoListening, SilentGauges

CONFIG = Config(pools={"mail": PoolConfig(workers=4)})
LIMITS = Restarts()
KEY = PoolKey(Role.WORKER, "mail", 1)
MAIL = Target(Role.WORKER, "mail", 4, 1)
POLLERS = Target(Role.POLLER, "pollers", 1, 1)


def failed(times: int, backoff: Backoff = Backoff(ever_ready=True)) -> Backoff:  # noqa: B008 - frozen
    for number in range(times):
        now = number * 100.0
        backoff = backoff.after_end(End(now, now, words=f"exit code {number}"), LIMITS)
    return backoff


class Told(log.Logger):
    """The events of pools that were logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = error = info

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


@pytest.fixture
def told() -> Iterator[Told]:
    logger = Told()
    with mock.patch.object(log, "logger", lambda: logger):  # noqa: PT008 - a mock would keep every call
        yield logger


@pytest.fixture
def records() -> Records:
    gauges = SilentGauges()
    loaded = Loaded(CONFIG, {}, ())
    return Records(SlotMemory.create(SLOTS), gauges, Reloading(loaded, lambda: loaded, NoListening(), gauges))


def test_only_pools_that_fail_in_a_row_are_held_back_and_who_needs_a_person_comes_first() -> None:
    backoffs = {KEY: failed(2), PoolKey(Role.POLLER, "pollers", 1): failed(BUDGETS[Role.POLLER])}
    rows = held_back([MAIL, POLLERS, Target(Role.EXPORTER, "exporter", 1, 1)], backoffs)
    assert [(row.role, row.state, row.setbacks, row.words) for row in rows] == [
        ("poller", "fatal", BUDGETS[Role.POLLER], f"exit code {BUDGETS[Role.POLLER] - 1}"),
        ("worker", "backoff", 2, "exit code 1"),
    ]


def test_missing_workers_of_a_pool_that_is_held_back_are_counted_under_its_state() -> None:
    live = Child(Role.WORKER, "mail", 1, 8, 1, State.READY, 0.0)
    dead = Child(Role.WORKER, "mail", 1, 9, 2, State.EXITED, 0.0)
    assert waiting_workers([MAIL], {KEY: failed(1)}, [live, dead]) == {("mail", "backoff"): 3}
    assert waiting_workers([MAIL], {KEY: failed(BUDGETS[Role.WORKER])}, [live]) == {("mail", "fatal"): 3}
    assert waiting_workers([MAIL], {}, [live]) == {}


def test_each_change_is_logged_once_and_a_failure_mended_by_the_next_start_is_not(records: Records, told: Told) -> None:
    standings = Standings(records)
    for times in (0, 1, 2, 3, BUDGETS[Role.WORKER], BUDGETS[Role.WORKER] + 1, 0):
        records.backoffs = {KEY: failed(times)}
        standings.show([MAIL])
        standings.show([MAIL])
    assert told.events == [events.POOL_BACKOFF, events.POOL_FATAL, events.POOL_BACK]
    assert told.lines[0][1] == {"failures": 2, "words": "exit code 1", "child": "worker", "pool": "mail"}


def test_a_new_generation_is_back_when_it_works_and_not_when_it_begins(records: Records, told: Told) -> None:
    standings = Standings(records)
    records.backoffs = {KEY: failed(3)}
    standings.show([MAIL])
    renewed = Target(Role.WORKER, "mail", 4, 2)
    standings.show([renewed])
    assert told.events == [events.POOL_BACKOFF]
    records.backoffs[PoolKey(Role.WORKER, "mail", 2)] = Backoff().after_ready(0.0)
    standings.show([renewed])
    assert told.events == [events.POOL_BACKOFF, events.POOL_BACK]


def test_the_notice_follows_and_a_fleet_that_stops_or_wants_none_of_a_pool_says_nothing(
    records: Records, told: Told
) -> None:
    standings = Standings(records)
    notice = Notice(records.memory.slot(MASTER_SLOT).spare)
    records.backoffs = {KEY: failed(3)}
    standings.show([MAIL])
    assert [(row.pool, row.setbacks) for row in notice.read()] == [("mail", 3)]
    standings.show([Target(Role.WORKER, "mail", 0, 1)])
    assert notice.read() == ()
    standings.show([MAIL])
    records.stop = Stop(Stage.WORKERS, 1.0)
    standings.show([MAIL])
    assert notice.read() == ()
    assert events.POOL_BACK not in told.events


def test_whoever_asks_for_a_reload_starts_afresh_but_for_code_that_never_worked(records: Records) -> None:
    never = Backoff()
    pollers, zygote = PoolKey(Role.POLLER, "pollers", 1), PoolKey(Role.ZYGOTE, "generation-2", 2)
    records.backoffs = {KEY: failed(4), pollers: failed(4, never), zygote: failed(4, never)}
    records.forgive()
    assert {key.role: backoff.failures for key, backoff in records.backoffs.items()} == {
        Role.WORKER: 0,
        Role.POLLER: 0,
        Role.ZYGOTE: 4,
    }


def test_a_task_that_a_new_worker_has_ended_clears_relapses_though_it_was_not_seen_running(records: Records) -> None:
    standings = Standings(records)
    records.backoffs = {KEY: Backoff(relapses=20, relapsed_at=5.0, ever_ready=True)}
    child = Child(Role.WORKER, "mail", 1, 8, 1, State.READY, asked_at=6.0)
    records.fleet._children[8] = child
    standings.calm_down(7.0)
    assert records.backoffs[KEY].relapses == 20
    slot = records.memory.slot(8)
    slot.start_task(CurrentTask(b"id mail i 1 1 0 0 0 0 -", "send", 1, 0))
    standings.calm_down(7.0)
    assert records.backoffs[KEY].relapses == 20, "it runs its first"
    slot.end_task()
    standings.calm_down(7.0)
    assert records.backoffs[KEY].relapses == 0


def test_what_a_pool_had_suffered_is_forgotten_with_the_pool(records: Records) -> None:
    gone, before = PoolKey(Role.WORKER, "gone", 1), PoolKey(Role.POLLER, "pollers", 1)
    records.backoffs = {KEY: failed(3), gone: failed(20, Backoff()), before: failed(20)}
    records.reloading.versions = Versions(pollers=2)
    Standings(records).calm_down(7.0)
    assert records.backoffs.keys() == {KEY}


def test_back_offs_are_kept_for_whatever_the_fleet_wants(records: Records) -> None:
    desired = desired_of(records.reloading.rollout, Versions(), Stop(), Scaling(), {})
    keys = {PoolKey(target.role, target.pool, target.generation) for target in desired.targets}
    assert {key.role for key in keys} == {Role.ZYGOTE, Role.WORKER, Role.POLLER, Role.EXPORTER}
    records.backoffs = dict.fromkeys(keys, failed(3))
    Standings(records).calm_down(7.0)
    assert records.backoffs.keys() == keys
