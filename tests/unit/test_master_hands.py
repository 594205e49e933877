"""The master's hands reach the process of a child, and no other that got its number."""

import signal
import subprocess
from collections.abc import Iterator

import pytest

from rota.child.signals import WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.spawn import Lines

SLOT = 7


@pytest.fixture
def process() -> "Iterator[subprocess.Popen[bytes]]":
    """One that ends at the first signal."""
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started
        started.kill()


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory.create(SLOT + 1)


def _woken(memory: SlotMemory, pid: int) -> None:
    child = Child(Role.WORKER, "default", 1, SLOT, 1, State.READY, 0.0, pid=pid)
    Hands(memory, Lines(-1, -1, -1), lambda: None).wake(child)


def test_a_worker_is_woken_when_it_is_in_its_slot(memory: SlotMemory, process: "subprocess.Popen[bytes]") -> None:
    memory.slot(SLOT).begin(1)
    memory.slot(SLOT).enter(1, process.pid)
    _woken(memory, process.pid)
    assert process.wait(30) == -WAKE_SIGNAL


def test_whomever_a_worker_names_in_its_slot_nobody_else_is_woken(
    memory: SlotMemory, process: "subprocess.Popen[bytes]"
) -> None:
    memory.slot(SLOT).begin(1)
    memory.slot(SLOT).enter(1, process.pid)
    _woken(memory, process.pid + 1)
    assert process.poll() is None
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM


def test_the_number_of_a_worker_that_was_reaped_is_signalled_no_more(
    memory: SlotMemory, process: "subprocess.Popen[bytes]"
) -> None:
    memory.slot(SLOT).begin(1)
    memory.slot(SLOT).enter(1, process.pid)
    memory.slot(SLOT).vacate()
    _woken(memory, process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


def test_nothing_is_killed_for_a_child_whose_owner_is_still_to_be_retired(
    memory: SlotMemory, process: "subprocess.Popen[bytes]"
) -> None:
    child = Child(Role.WORKER, "default", 1, SLOT, 1, State.EXITED, 0.0, pid=process.pid)  # reaped: it may be anybody's
    hands = Hands(memory, Lines(-1, -1, -1), lambda: None)
    hands.kill(child)
    hands.interrupt(child)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
