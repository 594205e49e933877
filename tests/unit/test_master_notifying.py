"""The messages of a fleet to its service manager at each tick, and the status line for people."""

import dataclasses
import math

import pytest

from rota.child.slot_record import TaskInSlot, TaskTimes
from rota.child.slots import Phase
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.control.port import RequestKind
from rota_supervisor.fleet_snapshot import Member, MemberTask, Moment
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.effects import NotifyManager
from rota_supervisor.master.core.fleet_status import status
from rota_supervisor.master.core.manager_messages import status_line
from rota_supervisor.master.core.master_events import Ticked
from rota_supervisor.master.core.state import Quiet
from support.cores import Core

CONFIG = Config(imports=("code",), pools={"mail": PoolConfig(workers=1)})


@pytest.fixture
def core() -> Core:
    core = Core(CONFIG)
    core.state.surroundings = dataclasses.replace(core.state.surroundings, has_manager=True, watchdog_seconds=4.0)
    return core


def _messages_at(core: Core, now: float) -> list[str]:
    core.now = now
    return [effect.message for effect in core.take(Ticked()) if isinstance(effect, NotifyManager)]


def _works(core: Core) -> None:
    core.state.wanted.rollout = core.state.rollout.promote().commit()


def test_a_starting_fleet_feeds_the_watchdog_and_extends_its_timeout(core: Core) -> None:
    told = [_messages_at(core, now) for now in (100.0, 100.5, 101.0, 110.1)]
    assert told[0][:2] == ["WATCHDOG=1", "EXTEND_TIMEOUT_USEC=30000000"]
    assert told[1] == []
    assert told[2] == ["WATCHDOG=1"]
    assert "EXTEND_TIMEOUT_USEC=30000000" in told[3]


def test_the_service_manager_is_told_of_readiness_changed_status_and_stopping(core: Core) -> None:
    _messages_at(core, 100.0)
    _works(core)
    told = _messages_at(core, 101.0)
    assert told[0] == "READY=1\nMAINPID=7"
    assert "STATUS=0 of 1 workers, 0 busy, generation 1" in told
    core.request(RequestKind.QUIET)
    core.state.redis_up = False
    assert "STATUS=0 of 1 workers, 0 busy, generation 1, quiet, Redis is away" in _messages_at(core, 103.0)
    core.request(RequestKind.DRAIN)
    assert _messages_at(core, 103.1)[0] == "STOPPING=1"


def test_the_status_line_summarizes_the_fleet(core: Core) -> None:
    core.child(Role.WORKER, 8, "mail").runs((TaskTimes(1, 0, 0, 1),))
    core.child(Role.WORKER, 9, "mail", state=ChildState.DRAINING)
    assert status_line(core.state) == "2 of 1 workers, 1 busy, starting"
    _works(core)
    assert status_line(core.state) == "2 of 1 workers, 1 busy, generation 1"
    core.state.quiet = Quiet.BY_PERSON
    core.state.redis_up = False
    assert status_line(core.state) == "2 of 1 workers, 1 busy, generation 1, quiet, Redis is away"
    core.state.quiet = Quiet.OFF
    core.state.redis_up = True
    core.state.wanted.rollout = core.state.rollout.with_candidate(CONFIG, {}, proven=False)
    assert status_line(core.state) == "2 of 1 workers, 1 busy, generation 1, generation 2 being rolled out"
    core.request(RequestKind.DRAIN)
    assert status_line(core.state) == "stopping: 2 workers left, 1 busy"


def test_without_a_service_manager_the_fleet_sends_no_messages(core: Core) -> None:
    core.state.surroundings = dataclasses.replace(core.state.surroundings, has_manager=False)
    assert _messages_at(core, 100.0) == []


def test_the_status_shows_each_pool_and_each_child(core: Core) -> None:
    _works(core)
    core.now = 100.0
    child = core.child(Role.WORKER, 8, "mail")
    child.ready_at = 100.0
    child.pid = 77
    task = MemberTask(TaskInSlot(b"id mail i 1 1 0 0 0 0 -", "send", 101_000_000_000, 0), 2.0, math.inf)
    slots = [Member(0, Role.MASTER, 1, Phase.IDLE, 0.0), Member(8, Role.WORKER, 77, Phase.BUSY, 0.5, (task,))]
    core.state.last_reload = {"result": "success", "at": 98.0}
    core.take(Ticked())
    shown = status(core.state, slots, Moment(103.0, 1e9))
    assert (shown["state"], shown["generation"], shown["loading"]) == ("running", 1, False)
    assert shown["last_reload"] == {"result": "success", "at": 1e9 - 5.0}
    assert shown["pools"] == [
        {
            "name": "mail",
            "state": "running",
            "desired": 1,
            "origin": "default",
            "configured": 1,
            "scaling": None,
            "workers": {"running": 1},
            "busy": 1,
            "concurrency": 1,
        }
    ]
    processes = shown["processes"]
    assert isinstance(processes, list)
    master = processes[0]
    row = processes[-1]
    assert (master["role"], master["pid"], master["tasks"]) == ("master", 1, [])
    assert (row["slot"], row["pid"], row["ready_seconds"], row["beat_age_seconds"]) == (8, 77, 3.0, 0.5)
    (shown_task,) = row["tasks"]
    assert shown_task["task"] == {"id": "id", "name": "send", "queue": "mail"}
    assert shown_task["task_age_seconds"] == 2.0
