"""The stack files of living children: one memfd each, which its process writes and only the master reads.

The open file description is shared with the child. So its offset says how much was written since the master last
went back to the beginning, and no child can be led to write beyond the end: the size is sealed. A child keeps its
file while it lives, 4 kB of memory once it has written there, and one descriptor of the master.
"""

import asyncio
import contextlib
import fcntl
import os
import resource
from operator import attrgetter
from typing import Final

from rota.child.child_signals import STACK_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import TaskInSlot
from rota.telemetry import log, log_events
from rota_supervisor.layout import STACK_FILE
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK, Child, ChildRef, ChildState
from rota_supervisor.master.core.death import shortened
from rota_supervisor.master.core.fleet_status import status
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.slots import members, moment, now_seconds
from rota_supervisor.process import UNREACHABLE

FILE_BYTES: Final = 64 << 10  # sparse. A hundred frames take 8 kB, and the main thread's come last
SPARE_DESCRIPTORS: Final = 64  # left for channels, connections and what else a master opens
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
ANSWER_SECONDS: Final = 0.2  # an answer takes 1 ms, more where hundreds answer at once
_STACK_CHARACTERS: Final = 3000  # of the 4,096 bytes of a line
_LINE_SECONDS: Final = 0.002
_DYING_SECONDS: Final = 1.0


def name_of(child: ChildRef) -> str:
    """The name of a child's file, of this life alone: a trace of it in whatever it leaves behind."""
    return f"{STACK_FILE}-{child.slot}-{child.nonce}"


class Stacks:
    """The files by child. `memory`: where a child shows that it can be asked."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._files: dict[int, int] = {}

    def make(self, child: ChildRef) -> int | None:
        """A file for a child about to be started; None when descriptors run out, and it lives without."""
        try:
            fd = os.memfd_create(name_of(child), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        if fd >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS:
            os.close(fd)
            return None
        os.ftruncate(fd, FILE_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        self._files[child.nonce] = fd
        return fd

    def ask(self, child: ChildRef) -> bool:
        """Have a child write its stacks, which takes about a millisecond; False when it cannot be asked."""
        fd, slot = self._files.get(child.nonce), self._memory.slot(child.slot)
        # Before it has come into its slot the signal would end it.
        can_hear = child.pid != 0 and slot.nonce == child.nonce and slot.pid == child.pid
        if fd is None or not can_hear:
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        with contextlib.suppress(*UNREACHABLE):
            os.kill(child.pid, STACK_SIGNAL)
        return True

    def ask_for_tasks(self, child: ChildRef) -> None:
        """Have a worker of several tasks write to its log where each of them is, once its loop comes round."""
        slot = self._memory.slot(child.slot)
        if slot.places > 1 and child.pid and slot.nonce == child.nonce and slot.pid == child.pid:
            slot.stacks_asked += 1
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, WAKE_SIGNAL)

    def text(self, child: ChildRef) -> str:
        """What it has written since it was last asked or read; "" for nothing."""
        fd = self._files.get(child.nonce)
        if fd is None:
            return ""
        # The task may have moved the offset to wherever it liked.
        written = os.pread(fd, min(os.lseek(fd, 0, os.SEEK_CUR), FILE_BYTES), 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return written.decode(errors="replace")

    def close(self, child: ChildRef) -> None:
        """Let the file of a child go that is no more."""
        fd = self._files.pop(child.nonce, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        """Let every file go."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


# Reports of stacks


class StackReport:
    """Writes how the fleet is, and where every child's threads are, one report at a time.

    That is done beside the loop: children get a moment to answer in, and the lines are spread, as a pipe takes 64 KB
    at a time.
    """

    def __init__(self, state: MasterState, memory: SlotMemory, stacks: Stacks, background: Background) -> None:
        self._state = state
        self._memory = memory
        self._stacks = stacks
        self._background = background
        self._is_writing = False

    def begin(self, _effect: do.WriteReport) -> None:
        """Write one, unless one is being written."""
        if not self._is_writing:
            self._is_writing = True
            self._background.start(self._write())

    def blocked(self, effect: do.ReportBlocked) -> None:
        """Write where a worker stands whose loop does not come round."""
        slot = self._memory.slot(effect.child.slot)
        place = slot.stepping
        task = None if place is None else slot.record(place).current()
        if task is not None and slot.nonce == effect.child.nonce and self._stacks.ask(effect.child):
            self._background.start(self._write_blocked(effect, task))

    async def _write_blocked(self, effect: do.ReportBlocked, task: TaskInSlot) -> None:
        await asyncio.sleep(ANSWER_SECONDS)
        log.logger().warning(
            log_events.WORKER_BLOCKED,
            pool=effect.pool,
            slot=effect.child.slot,
            child_pid=effect.child.pid,
            task=task.name,
            task_id=task.id,
            queue=task.queue,
            seconds=effect.seconds,
            stack=shortened(self._stacks.text(effect.child), _STACK_CHARACTERS) or "it did not answer",
        )

    async def _write(self) -> None:
        try:
            fleet = status(self._state, members(self._state, self._memory), moment())
            for left_out in ("processes", "events", "pid"):
                del fleet[left_out]
            log.logger().info(log_events.FLEET_STATUS, **fleet)
            await self._write_stacks()
        finally:
            self._is_writing = False

    async def _write_stacks(self) -> None:
        alive = AT_WORK | {ChildState.BOOTING}
        children = sorted((child for child in self._state.children if child.state in alive), key=attrgetter("slot"))
        asked = {child.nonce for child in children if self._ask(child)}
        await asyncio.sleep(ANSWER_SECONDS if asked else 0)
        for child in children:
            log.logger().info(
                log_events.WORKER_STACK,
                child=child.role.value,
                pool=child.pool,
                slot=child.slot,
                child_pid=child.pid,
                state=child.state.value,
                stack=self._stack_of(child, is_asked=child.nonce in asked),
            )
            self._stacks.ask_for_tasks(child.ref)
            await asyncio.sleep(_LINE_SECONDS)

    def _ask(self, child: Child) -> bool:
        return not _is_dying(child) and child.stopped_at is None and self._stacks.ask(child.ref)

    def _stack_of(self, child: Child, *, is_asked: bool) -> str:
        if not is_asked:
            return "it is stopped" if child.stopped_at is not None else "it cannot be asked, as while it starts"
        if _is_dying(child):
            return "it is being killed: see the event of its death"
        return shortened(self._stacks.text(child.ref), _STACK_CHARACTERS) or "it did not answer"


def _is_dying(child: Child) -> bool:
    """Whether it was asked for its stack because it is about to be killed: the event of its death shows that one."""
    return now_seconds() - child.dumped_at < _DYING_SECONDS
