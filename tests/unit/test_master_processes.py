"""The master's signals to a child. They reach only the child, never another process that has the same pid later."""

import signal
import subprocess
from collections.abc import Iterator

import pytest

from rota.child.child_process import WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota_supervisor.child_start import Spawner
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.core.effects import SetQuiet
from rota_supervisor.master.effects.processes import Processes

SLOT = 7


@pytest.fixture
def process() -> "Iterator[subprocess.Popen[bytes]]":
    """Yield a process that ends at the first signal."""
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started
        started.kill()


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory.create(SLOT + 1)


def _woken(memory: SlotMemory, pid: int) -> None:
    processes = Processes(memory, Spawner(), lambda _: None, lambda: None, lambda: None, bell_fd=-1, node="node")
    processes.set_quiet(SetQuiet((ChildRef(Role.WORKER, SLOT, 1, pid),), quiet=True))


def test_the_master_signals_a_worker_that_has_entered_its_slot(
    memory: SlotMemory, process: "subprocess.Popen[bytes]"
) -> None:
    memory.slot(SLOT).assign(1)
    memory.slot(SLOT).enter(1, process.pid)
    _woken(memory, process.pid)
    assert process.wait(30) == -WAKE_SIGNAL


def test_a_wrong_pid_in_a_slot_signals_no_process(memory: SlotMemory, process: "subprocess.Popen[bytes]") -> None:
    memory.slot(SLOT).assign(1)
    memory.slot(SLOT).enter(1, process.pid)
    _woken(memory, process.pid + 1)
    assert process.poll() is None
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM


def test_the_pid_of_a_reaped_worker_is_not_signalled(memory: SlotMemory, process: "subprocess.Popen[bytes]") -> None:
    memory.slot(SLOT).assign(1)
    memory.slot(SLOT).enter(1, process.pid)
    memory.slot(SLOT).vacate()
    _woken(memory, process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


def test_the_master_neither_writes_nor_signals_the_slot_of_another_worker(
    memory: SlotMemory, process: "subprocess.Popen[bytes]"
) -> None:
    memory.slot(SLOT).assign(2)
    memory.slot(SLOT).enter(2, process.pid)
    _woken(memory, process.pid)
    assert not memory.slot(SLOT).quiet_requested
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
