"""Workers that fail to start."""

from collections.abc import Iterator

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase
from rota_supervisor import messages
from rota_supervisor.child_start import Spawner
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import ForkWorker, FreeSlot, Order, ReapOwner, Register, SignalChild
from rota_supervisor.master.core.master_events import (
    Event,
    OwnersRegistered,
    SlotReading,
    SlotsRead,
    Ticked,
    ZygoteGone,
    ZygoteReported,
)
from rota_supervisor.master.effects.processes import Processes, ZygoteLine
from support.cores import Core

SLOT = 8
PID = 4711


class Start:
    """A worker that was requested from a zygote."""

    def __init__(self) -> None:
        self.core = Core(Config(imports=("code",)))
        self.zygote = self.core.child(Role.ZYGOTE, 2, "generation-1")
        self.child = self.core.child(Role.WORKER, SLOT, state=ChildState.REGISTERING)
        self.core.take(OwnersRegistered(((SLOT, self.child.nonce, "node:8:1"),), 30.0, 5))

    def fork_fails(self) -> list[type]:
        """Let the zygote report a failed fork, and return the types of the effects."""
        failed = messages.ForkFailed(SLOT, self.child.nonce, "the intermediate died")
        return [type(effect) for effect in self.core.take(ZygoteReported(1, failed))]


@pytest.fixture
def start() -> Start:
    return Start()


def test_a_worker_is_forked_once_its_owner_is_registered(start: Start) -> None:
    (requested,) = start.core.done(ForkWorker)
    assert (requested.zygote.slot, requested.child.slot, requested.owner, requested.renewed_ns) == (
        2,
        SLOT,
        "node:8:1",
        5,
    )
    assert start.child.state is ChildState.REQUESTED


def test_owners_of_workers_started_together_are_registered_in_one_call() -> None:
    core = Core(Config(imports=("code",), workers=3))
    core.child(Role.ZYGOTE, 2, "generation-1")
    core.take(Ticked())
    (register,) = core.done(Register)
    assert [slot for slot, _ in register.slots] == [8, 9, 10]


def test_after_a_failed_fork_the_slot_is_freed_before_the_owner_is_reaped(start: Start) -> None:
    kinds = start.fork_fails()
    assert kinds.index(FreeSlot) < kinds.index(ReapOwner)
    assert start.child.state is ChildState.EXITED
    # The record stays until the owner is reaped, so the slot is not given to another child.
    assert start.core.state.children.get(SLOT, start.child.nonce) is start.child


def test_a_fork_failure_reported_for_a_running_worker_is_ignored(start: Start) -> None:
    start.core.take(ZygoteReported(1, messages.Spawned(SLOT, start.child.nonce, PID)))
    assert start.fork_fails() == []
    assert (start.child.pid, start.child.state) == (PID, ChildState.BOOTING)


def test_a_worker_killed_before_its_pid_is_known_gets_the_signal_later(start: Start) -> None:
    start.child.move(ChildState.KILLED)
    (tell,) = start.core.take(ZygoteReported(1, messages.Spawned(SLOT, start.child.nonce, PID)))
    assert isinstance(tell, SignalChild)
    assert (tell.child.pid, tell.order) == (PID, Order.KILL)


def test_when_a_zygotes_channel_closes_its_starting_workers_are_given_up(start: Start) -> None:
    start.core.take(ZygoteGone(2, start.zygote.nonce))  # the channel closes before the process can be reaped
    assert start.child.state is ChildState.EXITED
    assert start.zygote.state is ChildState.KILLED
    assert [tell.child.slot for tell in start.core.done(SignalChild) if tell.order is Order.KILL] == [2]


def test_a_worker_is_ready_when_its_slot_is_idle(start: Start) -> None:
    start.core.take(ZygoteReported(1, messages.Spawned(SLOT, start.child.nonce, PID)))
    start.core.take(SlotsRead((SlotReading(SLOT, start.child.nonce, Phase.IDLE, (), 0),)))
    assert start.child.state is ChildState.READY


# The zygote's channel


class Channel(ZygoteLine):
    """A zygote's channel that returns what a test sets."""

    def __init__(self, zygote: Child) -> None:
        self.child = zygote.ref
        self.generation = 1
        self.is_open = True
        self.requested = {SLOT: 1}
        self.messages: list[messages.Message | None] = []

    def read(self) -> Iterator[messages.Message | None]:
        said = self.messages
        self.messages = []
        return iter(said)


@pytest.mark.parametrize("message", [None, messages.ForkFailed(SLOT, 1, "the intermediate died")])
def test_a_worker_found_in_its_slot_is_reported_before_a_fork_failure(message: messages.Message | None) -> None:
    memory = SlotMemory.create(SLOT + 1)
    processes = Processes(memory, Spawner(), lambda _: None, lambda: None, lambda: None, bell_fd=-1, node="node")
    channel = Channel(Child(Role.ZYGOTE, "generation-1", 1, 2, 1, ChildState.READY, 0.0))
    processes._zygotes.append(channel)

    def received_events() -> list[type[Event]]:
        channel.messages.append(message)
        return [type(event) for event in processes.receive()]

    said = ZygoteGone if message is None else ZygoteReported
    assert received_events() == [said]
    memory.slot(SLOT).assign(1)
    assert memory.slot(SLOT).enter(1, PID)
    assert received_events() == [ZygoteReported, said]
