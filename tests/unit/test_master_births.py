"""What becomes of a worker whose birth went wrong."""

from collections.abc import Iterator
from typing import cast

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.planning.actions import Start
from rota_supervisor.master.records import Records
from rota_supervisor.master.reload.reloading import Reloading
from rota_supervisor.master.shown.gauges import Gauges

SLOT, PID = 8, 4711


class Heard(Hands):
    """Hands that hear what a test says."""

    def __init__(self) -> None:
        self.messages: list[tuple[Child, messages.Message | None]] = []
        self.killed: list[Child] = []

    def kill(self, child: Child) -> None:
        self.killed.append(child)

    def hear(self) -> Iterator[tuple[Child, messages.Message | None]]:
        said, self.messages = self.messages, []
        return iter(said)


class Unborn(Deaths):
    """Notes whose birth was given up."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def never_born(self, child: Child, error: str, *, from_outside: bool = False) -> None:  # noqa: ARG002 - the signature is the product's
        self.children.append(child)


class Ward:
    """A worker that a zygote was asked for."""

    def __init__(self) -> None:
        memory = SlotMemory.create(SLOT + 1)
        records = Records(memory, cast(Gauges, None), cast(Reloading, None))
        self.child = records.fleet.apply(Start(Role.WORKER, "main", 1, SLOT), 0.0)
        self.slot: Slot = memory.slot(SLOT)
        self.slot.begin(self.child.nonce)
        self.child.move(State.ASKED)
        self.hands, self.deaths = Heard(), Unborn()
        self._births = Births(records, self.hands, self.deaths)

        self.zygote = Child(Role.ZYGOTE, "generation-1", 1, 2, 1, State.READY, 0.0)
        self.child.asked_of = self.zygote.nonce

    def hear(self, message: messages.Message | None) -> None:
        """Hear it from the zygote; None is the end of its channel."""
        self.hands.messages.append((self.zygote, message))
        self._births.listen()

    def recognised(self, pid: int) -> Child | None:
        return self._births.recognised(pid)

    def hear_that_it_failed(self) -> None:
        self.hear(messages.ForkFailed(SLOT, self.child.nonce, "the intermediate died"))


@pytest.fixture
def ward() -> Ward:
    return Ward()


def test_a_worker_that_comes_after_its_birth_was_given_up_finds_its_slot_taken(ward: Ward) -> None:
    ward.hear_that_it_failed()
    assert ward.deaths.children == [ward.child]
    assert not ward.slot.enter(ward.child.nonce, PID)


def test_a_worker_whose_intermediate_died_before_its_report_is_known_by_its_slot(ward: Ward) -> None:
    assert ward.slot.enter(ward.child.nonce, PID)
    ward.hear_that_it_failed()
    assert ward.deaths.children == []
    assert (ward.child.pid, ward.child.state) == (PID, State.BOOTING)


def test_a_worker_that_died_as_its_intermediate_did_is_known_by_its_slot_before_its_number_is_free(ward: Ward) -> None:
    assert ward.recognised(PID) is None
    assert ward.slot.enter(ward.child.nonce, PID)
    assert ward.recognised(PID + 1) is None
    assert ward.recognised(PID) is ward.child
    assert (ward.child.pid, ward.child.state) == (PID, State.BOOTING)


def test_a_zygote_whose_channel_ended_is_asked_for_nothing_more(ward: Ward) -> None:
    ward.hear(None)  # before its process can be waited for
    assert ward.deaths.children == [ward.child]
    assert ward.zygote.state is State.KILLED
    assert ward.hands.killed == [ward.zygote]
