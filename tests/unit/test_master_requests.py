"""What people ask of the fleet: signals and the control socket make the same calls, and a fleet that leaves refuses."""

import asyncio

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config, PoolConfig
from rota_supervisor.control.port import Refused, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.planning.actions import Start
from rota_supervisor.master.planning.targets import Stage, worker_counts
from rota_supervisor.master.records import Records
from rota_supervisor.master.reload.reloading import Reloading
from rota_supervisor.master.requests.requests import Requests
from rota_supervisor.master.requests.signals import Request
from simulation.hands import NoListening, SilentGauges

CONFIG = Config(pools={"mail": PoolConfig(workers=2), "web": PoolConfig(workers=1)})


class RememberingHands(Hands):
    """Reaches nobody, and remembers whom it woke."""

    def __init__(self) -> None:
        self.woken: list[int] = []

    def wake(self, child: Child) -> None:
        self.woken.append(child.slot)


class Fleet:
    """A fleet's records, and what can be asked of it."""

    def __init__(self) -> None:
        self.file = CONFIG
        gauges, listening = SilentGauges(), NoListening()
        reloading = Reloading(Loaded(CONFIG, {}, ()), lambda: Loaded(self.file, {}, ()), listening, gauges)
        self.records = Records(SlotMemory.create(32), gauges, reloading)
        self.records.reloading.rollout = reloading.rollout.promote().commit()
        self.hands = RememberingHands()
        self.reports = 0
        self.requests = Requests(self.records, self.hands, dict, self._report)

    def _report(self) -> None:
        self.reports += 1

    def worker(self, slot: int, *, registered: bool = True) -> Child:
        child = self.records.fleet.apply(Start(Role.WORKER, "mail", 1, slot), 0.0)
        if registered:
            self.records.memory.slot(slot).begin(child.nonce)
        return child

    def signal(self, request: Request) -> None:
        """As it comes in the master's loop."""

        async def signalled() -> None:
            self.requests.signalled(request)

        asyncio.run(signalled())

    def is_quiet(self, slot: int) -> bool:
        return self.records.memory.slot(slot).quiet_asked

    @property
    def counts(self) -> dict[str, int]:
        return worker_counts(self.records.reloading.rollout, self.records.reloading.scaling)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_one_more_and_one_less_are_of_the_first_pool(fleet: Fleet) -> None:
    fleet.requests.signalled(Request.MORE)
    assert fleet.counts == {"mail": 3, "web": 1}
    for _ in range(5):  # and never less than none
        fleet.requests.signalled(Request.LESS)
    assert fleet.counts == {"mail": 0, "web": 1}


def test_scaling_says_from_what_to_what(fleet: Fleet) -> None:
    assert fleet.requests.scale(ScaleOrder("web", 3, is_relative=True)) == {"pool": "web", "from": 1, "to": 4}
    assert fleet.records.wake.is_set()


def test_quiet_is_written_to_every_workers_slot_before_it_is_woken(fleet: Fleet) -> None:
    fleet.worker(8)
    fleet.worker(9)
    assert fleet.requests.quiet() == {"quiet": True, "changed": True}
    assert (fleet.is_quiet(8), fleet.is_quiet(9), fleet.hands.woken) == (True, True, [8, 9])
    assert fleet.records.phase is Phase.QUIET
    assert fleet.requests.quiet() == {"quiet": True, "changed": False}
    assert fleet.requests.resume() == {"quiet": False, "changed": True}
    assert (fleet.is_quiet(8), fleet.hands.woken, fleet.records.phase) == (False, [8, 9] * 2, Phase.IDLE)


def test_the_slot_of_a_worker_to_come_is_not_written_to_while_it_may_be_anothers(fleet: Fleet) -> None:
    fleet.worker(8, registered=False)
    fleet.requests.quiet()
    assert (fleet.is_quiet(8), fleet.hands.woken) == (False, [])  # it is told as it is registered


def test_a_continue_resumes_what_tstp_quieted_and_nothing_else(fleet: Fleet) -> None:
    phases = []
    asked = (
        lambda: fleet.requests.signalled(Request.QUIET),
        lambda: fleet.requests.signalled(Request.RESUME),
        fleet.requests.quiet,
        lambda: fleet.requests.signalled(Request.RESUME),
        fleet.requests.resume,
    )
    for ask in asked:
        ask()
        phases.append(fleet.records.phase)
    assert phases == [Phase.QUIET, Phase.IDLE, Phase.QUIET, Phase.QUIET, Phase.IDLE]


def test_a_stop_while_quiet_is_a_stop(fleet: Fleet) -> None:
    fleet.requests.quiet()
    fleet.requests.signalled(Request.DRAIN)
    assert (fleet.records.stop.stage, fleet.records.phase) == (Stage.WORKERS, Phase.DRAINING)


def test_a_fleet_that_leaves_takes_nothing_but_to_leave_sooner(fleet: Fleet) -> None:
    fleet.requests.drain()
    requests = fleet.requests
    for ask in (requests.reload, requests.restart, requests.preview, requests.quiet):
        with pytest.raises(Refused, match="the fleet is draining"):
            ask()
    with pytest.raises(Refused, match="the fleet is draining"):
        requests.scale(ScaleOrder("mail", 9))
    assert fleet.counts == {"mail": 2, "web": 1}
    assert requests.stop(now=False) == {"at_once": False}
    assert requests.stop(now=True) == {"at_once": True}


@pytest.mark.parametrize("request_", Request)
def test_no_signal_at_any_time_ends_the_loop_by_an_exception(fleet: Fleet, request_: Request) -> None:
    async def signalled() -> None:
        for each in (request_, Request.DRAIN, request_):
            fleet.requests.signalled(each)

    asyncio.run(signalled())


def test_what_became_of_a_reload_is_kept_for_people(fleet: Fleet) -> None:
    fleet.file = Config(pools={**CONFIG.pools, "web": PoolConfig(workers=4)})

    async def reload() -> None:
        await fleet.requests.reload()
        await asyncio.sleep(0)  # callbacks of the answer come after it

    asyncio.run(reload())
    kept = fleet.records.last_reload
    assert kept is not None
    assert (kept["result"], kept["changes"]) == ("success", ["counts"])


def test_an_operators_number_outlives_a_reload_and_the_files_later_one_wins(fleet: Fleet) -> None:
    fleet.requests.scale(ScaleOrder("mail", 5))
    fleet.file = Config(pools={**CONFIG.pools, "web": PoolConfig(workers=4)})
    fleet.signal(Request.RELOAD)
    assert fleet.counts == {"mail": 5, "web": 4}
    fleet.file = Config(pools={**CONFIG.pools, "mail": PoolConfig(workers=3)})
    fleet.signal(Request.RELOAD)
    assert fleet.counts == {"mail": 3, "web": 1}
