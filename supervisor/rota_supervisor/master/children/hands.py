"""The master's hands: start, tell, kill. They decide nothing, and the records were moved before they act."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from rota.child.signals import SOFT_LIMIT_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota_supervisor import messages, spawn
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.stacks import Stacks
from rota_supervisor.master.children.zygotes import ZygoteLine
from rota_supervisor.process import UNREACHABLE


class Hands:
    """Everything that reaches a child, and the channels to them."""

    def __init__(self, memory: SlotMemory, lines: spawn.Lines, wake: Callable[[], None]) -> None:
        """`wake` is called when a zygote has said something."""
        self._memory = memory
        self._lines = lines
        self._wake = wake
        self._channels: dict[int, socket.socket] = {}
        self._zygotes: list[ZygoteLine] = []
        self.stacks = Stacks(memory)

    def start(self, child: Child, settings: dict[str, Any], listen_fd: int | None = None) -> None:
        """Spawn a zygote, a poller or the exporter. Raises OSError when the kernel refuses."""
        self._memory.slot(child.slot).begin(child.nonce)
        stack_fd = self._make_stack(child)
        first = messages.First(
            child.role.value, os.getpid(), child.slot, child.nonce, settings, has_stack_file=stack_fd is not None
        )
        started = spawn.spawn(first, self._lines, listen_fd, stack_fd)
        child.pid = started.pid
        if child.role is Role.ZYGOTE:
            self._zygotes.append(ZygoteLine(child, started.channel, self._wake))
        else:
            self.let_go(child)
            self._channels[child.slot] = started.channel

    def fork(self, zygote: Child, child: Child, pool_settings: str) -> None:
        """Ask a zygote for a worker."""
        request = messages.Fork(child.slot, child.nonce, child.owner, child.pool)
        line = self._line_to(zygote)
        assert line is not None, "a READY zygote has a channel"
        line.fork(pool_settings, request, self._make_stack(child))

    def _make_stack(self, child: Child) -> int | None:
        fd = self.stacks.make(child)
        child.has_stack = fd is not None
        return fd

    def ask_to_leave(self, child: Child) -> None:
        """TERM, and for a zygote a Bye: its signals are blocked."""
        line = self._line_to(child)
        if line is not None:
            line.bye()
        else:
            self._signal(child, signal.SIGTERM)

    def wake(self, child: Child) -> None:
        """Have a worker look at its slot. One that is not in it yet looks when it begins."""
        pid = self._memory.slot(child.slot).pid  # there before its report, and no more once its number is free
        if pid and child.pid in (0, pid):  # nobody else, whatever a process wrote there
            with contextlib.suppress(*UNREACHABLE):
                os.kill(pid, WAKE_SIGNAL)

    def interrupt(self, child: Child) -> None:
        """Tell a worker that the soft limit of its task is over."""
        self._signal(child, SOFT_LIMIT_SIGNAL)

    def dump(self, child: Child) -> None:
        """Have it write down its stack."""
        self.stacks.ask(child)

    def kill(self, child: Child) -> None:
        """SIGKILL for it and its group. Without a pid yet there is nothing to do: its report will find it KILLED."""
        if _has_number(child):
            self._signal(child, signal.SIGKILL)
            self._kill_group(child)

    def lay_out(self, child: Child) -> None:
        """While its zombie holds the number: kill what is left of its group, and take it out of its slot."""
        self._kill_group(child)
        self._memory.slot(child.slot).vacate()

    @staticmethod
    def _signal(child: Child, number: int) -> None:
        if _has_number(child):
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, number)

    def _kill_group(self, child: Child) -> None:
        with contextlib.suppress(*UNREACHABLE):
            os.killpg(child.pid, signal.SIGKILL)

    def hear(self) -> Iterator[tuple[Child, messages.Message | None]]:
        """What the zygotes and their intermediates have sent, with the zygote; None when all of them are gone."""
        for line in list(self._zygotes):
            for message in line.read():
                yield line.child, message
        self._zygotes = [line for line in self._zygotes if line.is_open]

    def let_go(self, child: Child) -> None:
        """Close the channel to a child that is no more. A zygote's stays until its intermediates are gone too."""
        channel = self._channels.pop(child.slot, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all channels, which zygotes take for our death, and do as undertakers do; and the stack files."""
        for line in self._zygotes:
            line.close()
        for channel in self._channels.values():
            channel.close()
        self.stacks.close_all()

    def _line_to(self, zygote: Child) -> ZygoteLine | None:
        return next((line for line in self._zygotes if line.child is zygote), None)


def _has_number(child: Child) -> bool:
    """Whether its pid is its own: once reaped it may be anybody's, and its record stays until its owner is retired."""
    return child.pid != 0 and child.state is not State.EXITED


def bell_fd(rung: Callable[[], None]) -> int:
    """An eventfd that children write to when their slot is worth a look."""
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def answer() -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(fd)
        rung()

    asyncio.get_running_loop().add_reader(fd, answer)
    return fd
