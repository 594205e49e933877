"""The schedules that a node declares. The schedules come from the node's code and configuration file, and are declared
as soon as these are in force.
"""

from typing import Final

import pytest

from rota.schedules.schedule import EveryRule, Schedule, encode_schedule
from rota_supervisor import messages
from rota_supervisor.config.model import Config, ScheduleConfig
from rota_supervisor.control.port import RequestKind
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.effects import RenewLeases
from rota_supervisor.master.core.master_events import LeasesRenewed, Ticked, ZygoteReported
from support.cores import Core

OF_CODE: Final = encode_schedule(Schedule("tick", "work", EveryRule(1_000_000), "default")).decode()
CONFIG: Final = Config(imports=("code",), workers=1, schedules={"nightly": ScheduleConfig(task="work", every=60)})


@pytest.fixture
def core() -> Core:
    """Return a fleet with loaded code that has a task and a schedule."""
    core = Core(CONFIG)
    core.child(Role.ZYGOTE, 1, state=ChildState.BOOTING)
    core.take(ZygoteReported(1, messages.Imported((("work", "default"),))))
    core.take(ZygoteReported(1, messages.Scheduled("tick", OF_CODE)))
    return core


def loaded(core: Core) -> None:
    core.state.code_of(1).is_loaded = True


def declared(core: Core, now: float) -> dict[str, float]:
    """Renew the leases. Return the schedules that the renewal declares, each with the number of seconds for which this
    node has been declaring it.
    """
    core.now = now
    renewals = [effect for effect in core.take(Ticked()) if isinstance(effect, RenewLeases)]
    core.take(LeasesRenewed())
    return {each.name: each.age_seconds for each in renewals[0].schedules} if renewals else {}


def test_no_schedule_is_declared_before_the_code_is_loaded(core: Core) -> None:
    assert declared(core, 1.0) == {}
    loaded(core)
    assert declared(core, 1.1) == {"tick": 0.0, "nightly": 0.0}


def test_each_lease_renewal_declares_the_schedules_with_their_age(core: Core) -> None:
    loaded(core)
    declared(core, 1.0)
    assert declared(core, 1.0 + CONFIG.lease.renew_seconds) == dict.fromkeys(
        ("tick", "nightly"), CONFIG.lease.renew_seconds
    )


def test_a_reload_declares_changed_schedules_at_once(core: Core) -> None:
    loaded(core)
    declared(core, 1.0)
    core.state.wanted.rollout = core.state.rollout.promote().commit()
    core.file = Config(
        imports=("code",),
        workers=1,
        schedules={"nightly": ScheduleConfig(task="work", every=30), "hourly": ScheduleConfig(task="work", every=3600)},
    )
    core.request(RequestKind.RELOAD)
    assert declared(core, 2.0) == {"tick": 1.0, "nightly": 0.0, "hourly": 0.0}
    core.file = Config(imports=("code",), workers=1)
    core.request(RequestKind.RELOAD)
    assert declared(core, 3.0) == {"tick": 2.0}


def test_declarations_of_schedules_are_final_once_the_reload_has_succeeded(core: Core) -> None:
    loaded(core)
    core.take(Ticked())
    assert [renewal.is_settled for renewal in core.done(RenewLeases)] == [False]
    core.take(LeasesRenewed())
    core.state.wanted.rollout = core.state.rollout.promote().commit()
    core.now = 1.0 + CONFIG.lease.renew_seconds
    core.take(Ticked())
    assert core.done(RenewLeases)[-1].is_settled


def test_schedules_of_the_file_override_those_of_the_code(core: Core) -> None:
    loaded(core)
    core.state.wanted.rollout = core.state.rollout.promote().commit()
    core.file = Config(imports=("code",), workers=1, schedules={"tick": ScheduleConfig(task="work", every=5)})
    core.request(RequestKind.RELOAD)
    core.take(Ticked())
    [renewal] = core.done(RenewLeases)[-1:]
    assert [(each.name, b"file" in each.text) for each in renewal.schedules] == [("tick", True)]


def test_task_names_are_announced_once_the_code_is_loaded() -> None:
    core = Core(Config(imports=("code",), workers=1))
    core.child(Role.ZYGOTE, 1, state=ChildState.BOOTING)
    core.take(ZygoteReported(1, messages.Imported((("work", "default"),))))
    told = []
    for now in (1.0, 1.1):
        core.now = now
        told += [effect.tasks for effect in core.take(Ticked()) if isinstance(effect, RenewLeases)]
        core.take(LeasesRenewed())
        loaded(core)
    assert told == [None, ("work",)]
