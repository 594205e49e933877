"""Stack files: how a child accesses its file, and when the master requests a stack."""

import os
import resource
from collections.abc import Iterator

import pytest

from rota.child.slot_memory import SlotMemory
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.effects.processes import FILE_BYTES, SPARE_DESCRIPTORS, Stacks

NONCE = 7


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory.create(2)


@pytest.fixture
def stacks(memory: SlotMemory) -> Iterator[Stacks]:
    made = Stacks(memory)
    yield made
    made.close_all()


@pytest.fixture
def child() -> ChildRef:
    return ChildRef(Role.WORKER, 1, NONCE, os.getpid())


def made(stacks: Stacks, child: ChildRef) -> int:
    fd = stacks.make(child)
    assert fd is not None
    return fd


def test_each_stack_text_of_a_child_is_returned_once(stacks: Stacks, child: ChildRef) -> None:
    fd = made(stacks, child)
    os.write(fd, b"first, and long")
    assert stacks.text(child) == "first, and long"
    assert stacks.text(child) == ""
    os.write(fd, b"second")
    assert stacks.text(child) == "second"


def test_closing_all_stack_files_closes_every_file_descriptor(stacks: Stacks, child: ChildRef) -> None:
    fd = made(stacks, child)
    stacks.close_all()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_child_can_neither_extend_nor_truncate_its_stack_file(stacks: Stacks, child: ChildRef) -> None:
    fd = made(stacks, child)
    os.lseek(fd, 1 << 60, os.SEEK_SET)
    with pytest.raises(PermissionError):
        os.write(fd, b"x")
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    assert len(stacks.text(child)) == FILE_BYTES


def test_no_stack_is_requested_before_the_child_handles_the_signal(
    stacks: Stacks, child: ChildRef, memory: SlotMemory
) -> None:
    made(stacks, child)
    assert not stacks.request(child)  # the child has no handler yet, so the signal would end it
    memory.slot(child.slot).assign(NONCE)
    assert not stacks.request(child)


def test_a_child_without_a_stack_file_has_no_stack(stacks: Stacks, child: ChildRef) -> None:
    assert not stacks.request(child)
    assert stacks.text(child) == ""
    stacks.close(child)


def test_closing_a_stack_file_closes_its_file_descriptor(stacks: Stacks, child: ChildRef) -> None:
    fd = made(stacks, child)
    stacks.close(child)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_the_last_free_file_descriptors_are_not_used_for_stack_files(stacks: Stacks, child: ChildRef) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fd = made(stacks, child)
    stacks.close(child)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + SPARE_DESCRIPTORS, hard))
    try:
        assert stacks.make(child) is None
        os.close(os.dup(0))  # succeeds only if a descriptor is free
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
