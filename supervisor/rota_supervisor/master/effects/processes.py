"""Children started, signalled and killed, the master's end of their channels, and their stack files. Nothing is decided
here."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from rota.child.child_life import SOFT_LIMIT_SIGNAL, STACK_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota.server.logins import fleet_login
from rota_supervisor import messages
from rota_supervisor.child_start import Spawner, greet
from rota_supervisor.layout import CHANNEL_FD, STACK_FILE, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.core.master_events import Event, StackFileMade, Started, ZygoteGone, ZygoteSaid
from rota_supervisor.process import UNREACHABLE

_SIGNALS: Final = {do.Order.LEAVE: signal.SIGTERM, do.Order.INTERRUPT: SOFT_LIMIT_SIGNAL, do.Order.KILL: signal.SIGKILL}
_SHOWN_BYTES: Final = 80


class ZygoteLine:
    """One zygote's channel: packets out without ever blocking, packets in when there are any. `asked`: by slot the life
    for which the zygote was asked last. `wake` is called when there is something to `read`."""

    def __init__(self, child: ChildRef, generation: int, channel: socket.socket, wake: Callable[[], None]) -> None:
        self.child = child
        self.generation = generation
        self.asked: dict[int, int] = {}
        self._channel = channel
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._pool_settings: dict[str, str] = {}
        self.is_open = True
        asyncio.get_running_loop().add_reader(channel, wake)

    def lend(self, slots_fd: int) -> None:
        """Give it the memory of the slots for its workers. It leaves when there is no descriptor left for that."""
        self._send(messages.Slots(), _copy(slots_fd))

    def fork(self, pool_settings: str, request: messages.Fork, stack_fd: int | None) -> None:
        """Ask for a worker with that stack file, telling the settings of its pool first when they are new."""
        self.asked[request.slot] = request.nonce
        if self._pool_settings.get(request.pool) != pool_settings:
            self._pool_settings[request.pool] = pool_settings
            self._send(messages.PoolSettings(request.pool, pool_settings))
        # A copy, as it may have to wait here until after the child was given up, and its file with it.
        self._send(request, None if stack_fd is None else _copy(stack_fd))

    def bye(self) -> None:
        """Let it leave in peace."""
        self._send(messages.Bye())

    def read(self) -> Iterator[messages.Message | None]:
        """What has come, without waiting; None as the last, once, when the other end is closed."""
        while self.is_open:
            try:
                packet = self._channel.recv(messages.MAX_PACKET)
            except BlockingIOError:
                return
            except ConnectionResetError:  # said once, when it left without reading all: what it had sent is still there
                continue
            if not packet:
                self.close()
                yield None
                return
            yield _message_of(packet)

    def close(self) -> None:
        """Close our end; without a Bye the zygote takes us for dead."""
        if not self.is_open:
            return
        self.is_open = False
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        loop.remove_writer(self._channel)
        self._channel.close()
        while self._outbox:
            self._drop_first()

    def _send(self, message: messages.Message, fd: int | None = None) -> None:
        self._outbox.append((messages.encode(message), fd))
        if self.is_open:
            self._flush()
        else:
            self._drop_first()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead: `read` sees the end
            while self._outbox:
                try:
                    messages.send_along(self._channel, *self._outbox[0])
                except BlockingIOError:
                    loop.add_writer(self._channel, self._flush)
                    return
                self._drop_first()
        loop.remove_writer(self._channel)

    def _drop_first(self) -> None:
        _, fd = self._outbox.popleft()
        if fd is not None:
            os.close(fd)


def _message_of(packet: bytes) -> messages.Message:
    """What a packet says. The user's code runs at the other end: what it writes there must not end the master."""
    try:
        return messages.decode_of_zygote(packet)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrote = f"{packet[:_SHOWN_BYTES]!r}, {len(packet)} bytes"
        return messages.Warned(f"a module wrote to descriptor {CHANNEL_FD}, which is not its own: {wrote}")


def _login_fds() -> tuple[int, ...]:
    shared = fleet_login.shared
    return () if shared is None else (shared.to_read, shared.bell)


def _copy(fd: int) -> int | None:
    try:
        return os.dup(fd)
    except OSError:  # no descriptor is left
        return None


class Processes:
    """Everything that reaches a child. `happened` takes what comes of it; `wake` is called when a zygote has said
    something, and `listen_fd` returns the descriptor where the exporter is to listen."""

    def __init__(
        self,
        memory: SlotMemory,
        spawner: Spawner,
        happened: Callable[[Event], None],
        wake: Callable[[], None],
        listen_fd: Callable[[], int | None],
        *,
        bell_fd: int,
        node: str,
    ) -> None:
        self._node = node
        self._memory = memory
        self._spawner = spawner
        self._bell_fd = bell_fd
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
        whose = child.role.value, self._node, os.getpid(), child.slot, child.nonce
        listen_fd = self._listen_fd() if child.role is Role.EXPORTER else None
        descriptors = messages.Descriptors(self._memory.fd, self._bell_fd, listen_fd, stack_fd, *_login_fds())
        try:
            started = self._spawner.begin(child.role)
            greet(started, messages.First(*whose, effect.settings), descriptors)
        except OSError as error:
            self._happened(Started(child.slot, child.nonce, error=str(error)))
            return
        self._happened(Started(child.slot, child.nonce, started.pid))
        if child.role is Role.ZYGOTE:
            generation = effect.settings["generation"]
            line = ZygoteLine(child, generation, started.channel, self._wake)
            line.lend(self._memory.fd)
            self._zygotes.append(line)
        else:
            self._close_channel(child.slot)
            self._channels[child.slot] = started.channel

    def fork(self, effect: do.ForkWorker) -> None:
        """Give a worker its slot, and ask its zygote for it."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.begin(child.nonce, effect.places)
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
        """Send the signal; a zygote, whose signals are blocked, is sent a Bye. A child whose process nobody has
        reported yet gets nothing: its report will find it KILLED."""
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

    def tell_cancelled(self, effect: do.TellCancelled) -> None:
        """Write down which task it is, then send the signal."""
        slot = self._memory.slot(effect.child.slot)
        if slot.nonce == effect.child.nonce:
            slot.record(effect.place).cancelled = effect.number
            self.tell(do.Tell(effect.child, do.Order.INTERRUPT))

    # Hearing

    def hear(self) -> Iterator[Event]:
        """What zygotes and their intermediates have said so far."""
        for line in list(self._zygotes):
            for message in line.read():
                yield from self._heard(line, message)
        self._zygotes = [line for line in self._zygotes if line.is_open]

    def _heard(self, line: ZygoteLine, message: messages.Message | None) -> Iterator[Event]:
        """Yield the events of a message. A worker reported as failed, or whose zygote died, may still be in its slot,
        as its intermediate died before it could report: then a Spawned for it is yielded first."""
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


# Stack files: one memfd for each living child, which its process writes and only the master reads. The open file
# description is shared with the child. So its offset says how much was written since the master last went back to the
# beginning, and no child can be led to write beyond the end: the size is sealed. A child keeps its file while it lives:
# 4 kB of memory once it has written there, and one descriptor of the master.


FILE_BYTES: Final = 64 << 10  # sparse. A hundred frames take 8 kB, and the main thread's come last
SPARE_DESCRIPTORS: Final = 64  # left for channels, connections and what else a master opens
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


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
