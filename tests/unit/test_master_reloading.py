"""Reloads in motion: what becomes of those that come while another is on its way, and that each is answered."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.children import Child, State
from rota_supervisor.master.fleet import Fleet
from rota_supervisor.master.plan import Start
from rota_supervisor.master.reloading import Answer, Reloading
from simulation.hands import NoListening, SilentGauges

CONFIG = Config(workers=2, imports=("code.0",))
NEW_CODE = msgspec.structs.replace(CONFIG, imports=("code.1",))
NEWER_CODE = msgspec.structs.replace(CONFIG, imports=("code.2",))


class Reloads:
    """A fleet's reloads, with children that are whatever a test says they are."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.fleet = Fleet()
        self.file = CONFIG
        self.reloading = Reloading(CONFIG, lambda: Loaded(self.file, {}, ()), NoListening(), SilentGauges())

    def ask(self, config: Config) -> "asyncio.Future[Answer]":
        """A HUP with that file."""
        self.file = config
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.reloading.reload(answer, self.fleet)
        return answer

    def child(self, role: Role, slot: int) -> Child:
        """A READY child of the latest generation."""
        number = self.reloading.rollout.latest.number
        pool = "default" if role is Role.WORKER else f"generation-{number}"
        child = self.fleet.apply(Start(role, pool, number, slot), 0.0)
        child.state = State.READY
        return child

    def promote(self) -> None:
        """The latest generation's zygote is ready."""
        self.reloading.zygote_ready(self.child(Role.ZYGOTE, 2 + self.reloading.rollout.latest.number % 2))

    def take_over(self) -> None:
        """The latest generation has replaced all others."""
        for old in list(self.fleet):
            old.state = State.EXITED
            self.fleet.forget(old)
        self.promote()
        self.child(Role.WORKER, 8)
        self.reloading.settle(self.fleet, {})

    def refuse(self) -> None:
        """The latest generation does not work."""
        self.reloading.import_hung(self.child(Role.ZYGOTE, 2 + self.reloading.rollout.latest.number % 2))


@pytest.fixture
def reloads() -> Iterator[Reloads]:
    loop = asyncio.new_event_loop()
    yield Reloads(loop)
    loop.close()


def _result(answer: "asyncio.Future[Answer]") -> object:
    return answer.result()["result"]


def test_a_reload_while_the_first_generation_starts_is_answered_when_it_works(reloads: Reloads) -> None:
    answer = reloads.ask(NEW_CODE)
    assert not answer.done()
    reloads.take_over()
    assert _result(answer) == "success"


def test_counts_changed_while_code_is_rolled_in_hold_when_it_works(reloads: Reloads) -> None:
    reloads.take_over()
    code = reloads.ask(NEW_CODE)
    reloads.promote()
    counts = reloads.ask(msgspec.structs.replace(NEW_CODE, workers=5))
    assert reloads.reloading.config.workers == 5  # at once
    assert not counts.done()
    reloads.take_over()
    assert (_result(code), _result(counts)) == ("success", "success")


def test_counts_changed_while_code_is_rolled_in_go_with_it_when_it_does_not_work(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.ask(NEW_CODE)
    counts = reloads.ask(msgspec.structs.replace(NEW_CODE, workers=5))
    reloads.refuse()
    assert reloads.reloading.config == CONFIG
    assert _result(counts) == "failure"


def test_code_that_works_is_accepted_though_a_later_reload_takes_its_place_and_fails(reloads: Reloads) -> None:
    reloads.take_over()
    earlier = reloads.ask(NEW_CODE)
    reloads.promote()
    reloads.child(Role.WORKER, 9)
    later = reloads.ask(NEWER_CODE)
    assert _result(earlier) == "success"
    reloads.refuse()
    assert _result(later) == "failure"
    assert reloads.reloading.config == NEW_CODE


def test_a_first_generation_that_worked_is_the_first_though_a_reload_takes_its_place_at_once(reloads: Reloads) -> None:
    reloads.promote()
    reloads.child(Role.WORKER, 8)
    answer = reloads.ask(NEW_CODE)  # before it was looked at again
    assert reloads.reloading.settle(reloads.fleet, {})
    assert not reloads.reloading.settle(reloads.fleet, {})
    reloads.refuse()
    assert _result(answer) == "failure"
    assert reloads.reloading.config == CONFIG
    assert not reloads.reloading.settle(reloads.fleet, {})


def test_new_code_takes_over_though_signals_have_left_no_worker_to_show_it(reloads: Reloads) -> None:
    reloads.take_over()
    reloads.reloading.adjust["default"] = -2
    answer = reloads.ask(NEW_CODE)
    for old in reloads.fleet.of(Role.WORKER):
        old.state = State.DRAINING
    reloads.promote()
    reloads.reloading.settle(reloads.fleet, {})
    assert _result(answer) == "success"
