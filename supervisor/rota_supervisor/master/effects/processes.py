"""Children started, told and killed, and the channels to them. Nothing is decided here."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

from rota.child.signals import SOFT_LIMIT_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota_supervisor import messages, spawn
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.core.events import Event, StackFileMade, Started, ZygoteGone, ZygoteSaid
from rota_supervisor.master.effects.stacks import Stacks
from rota_supervisor.master.effects.zygotes import ZygoteLine
from rota_supervisor.process import UNREACHABLE

_SIGNALS: Final = {do.Order.LEAVE: signal.SIGTERM, do.Order.INTERRUPT: SOFT_LIMIT_SIGNAL, do.Order.KILL: signal.SIGKILL}


class Processes:
    """Everything that reaches a child. `happened` takes what comes of it; `wake` is called when a zygote has said
    something, and `listen_fd` returns the descriptor where the exporter is to listen."""

    def __init__(
        self,
        memory: SlotMemory,
        lines: spawn.InheritedFds,
        happened: Callable[[Event], None],
        wake: Callable[[], None],
        listen_fd: Callable[[], int | None],
    ) -> None:
        self._memory = memory
        self._lines = lines
        self._happened = happened
        self._wake = wake
        self._listen_fd = listen_fd
        self._channels: dict[int, socket.socket] = {}
        self._zygotes: list[ZygoteLine] = []
        self.stacks = Stacks(memory)

    # Starting

    def spawn(self, effect: do.Spawn) -> None:
        """Start a zygote, a poller or the exporter."""
        child = effect.child
        self._memory.slot(child.slot).begin(child.nonce)
        stack_fd = self._make_stack(child)
        first = messages.First(
            child.role.value, os.getpid(), child.slot, child.nonce, effect.settings, has_stack_file=stack_fd is not None
        )
        listen_fd = self._listen_fd() if child.role is Role.EXPORTER else None
        try:
            started = spawn.spawn(first, self._lines, listen_fd, stack_fd)
        except OSError as error:
            self._happened(Started(child.slot, child.nonce, error=str(error)))
            return
        self._happened(Started(child.slot, child.nonce, started.pid))
        if child.role is Role.ZYGOTE:
            generation = effect.settings["generation"]
            line = ZygoteLine(child, generation, started.channel, self._wake)
            line.lend(self._lines.slots_fd)
            self._zygotes.append(line)
        else:
            self._close_channel(child.slot)
            self._channels[child.slot] = started.channel

    def fork(self, effect: do.ForkWorker) -> None:
        """Give a worker its slot, and ask its zygote for it."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.begin(child.nonce)
        slot.renewed_ns = effect.renewed_ns
        slot.quiet_asked = effect.quiet
        line = self._line_to(effect.zygote)
        assert line is not None, "a READY zygote has a channel"
        request = messages.Fork(child.slot, child.nonce, effect.owner, effect.pool)
        line.fork(effect.settings, request, self._make_stack(child))

    def _make_stack(self, child: ChildRef) -> int | None:
        fd = self.stacks.make(child)
        if fd is not None:
            self._happened(StackFileMade(child.slot, child.nonce))
        return fd

    # Telling

    def tell(self, effect: do.Tell) -> None:
        """Send the signal; a zygote, whose signals are blocked, is told to leave by a Bye. A child whose process nobody
        has reported yet is told nothing: its report will find it KILLED."""
        child, order = effect.child, effect.order
        line = self._line_to(child) if order is do.Order.LEAVE else None
        if line is not None:
            line.bye()
        elif order is do.Order.WRITE_STACK:
            self.stacks.ask(child)
        elif child.pid:
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, _SIGNALS[order])
            if order is do.Order.KILL:
                kill_group(child.pid)

    def set_quiet(self, effect: do.SetQuiet) -> None:
        """Write it into the slots, and have the workers look there. One that is not in its slot yet looks when it
        begins."""
        for child in effect.children:
            slot = self._memory.slot(child.slot)
            if slot.nonce != child.nonce:
                continue
            slot.quiet_asked = effect.quiet
            pid = slot.pid  # there before the report of its birth, and no more once its number is free
            if pid and child.pid in (0, pid):  # nobody else, whatever a process wrote there
                with contextlib.suppress(*UNREACHABLE):
                    os.kill(pid, WAKE_SIGNAL)

    # Hearing

    def hear(self) -> Iterator[Event]:
        """What zygotes and their intermediates have said so far."""
        for line in list(self._zygotes):
            for message in line.read():
                yield from self._heard(line, message)
        self._zygotes = [line for line in self._zygotes if line.is_open]

    def _heard(self, line: ZygoteLine, message: messages.Message | None) -> Iterator[Event]:
        """Whoever is said not to come, or whose zygote is gone, may be in its slot all the same: its intermediate died
        before it could report."""
        match message:
            case None:
                for slot, nonce in line.asked.items():
                    yield from self._who_came(slot, nonce)
                yield ZygoteGone(line.child.slot, line.child.nonce)
            case messages.ForkFailed(slot, nonce):
                yield from self._who_came(slot, nonce)
                yield ZygoteSaid(line.generation, message)
            case _:
                yield ZygoteSaid(line.generation, message)

    def _who_came(self, slot: int, nonce: int) -> Iterator[Event]:
        seen = self._memory.slot(slot)
        if seen.nonce == nonce and seen.pid > 1:
            yield ZygoteSaid(0, messages.Spawned(slot, nonce, seen.pid))

    def _line_to(self, zygote: ChildRef) -> ZygoteLine | None:
        return next((line for line in self._zygotes if line.child.nonce == zygote.nonce), None)

    # Letting go

    def free_slot(self, effect: do.FreeSlot) -> None:
        """Whoever comes late finds another life's number in it."""
        self._memory.slot(effect.slot).begin(0)

    def close_channels(self, effect: do.CloseChannels) -> None:
        """A zygote's channel stays until its intermediates are gone too."""
        if effect.child.role is not Role.ZYGOTE:
            self._close_channel(effect.child.slot)
        self.stacks.close(effect.child)

    def _close_channel(self, slot: int) -> None:
        channel = self._channels.pop(slot, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all channels, which zygotes take for our death, and the stack files."""
        for line in self._zygotes:
            line.close()
        for channel in self._channels.values():
            channel.close()
        self.stacks.close_all()


def kill_group(pid: int) -> None:
    """SIGKILL for what is left of a child's process group."""
    with contextlib.suppress(*UNREACHABLE):
        os.killpg(pid, signal.SIGKILL)


def bell_fd(rung: Callable[[], None]) -> int:
    """An eventfd that children write to when their slot is worth a look."""
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def answer() -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(fd)
        rung()

    asyncio.get_running_loop().add_reader(fd, answer)
    return fd
