"""The operations on children: starting, signalling and killing them, the master's end of their channels, and their
stack files. This module makes no decisions, but carries out those of the core."""

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

from rota.child.child_process import SOFT_LIMIT_SIGNAL, STACK_SIGNAL, WAKE_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota.server.logins import fleet_login
from rota_supervisor import messages
from rota_supervisor.child_start import Spawner, greet
from rota_supervisor.layout import CHANNEL_FD, STACK_FILE, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.core.master_events import Event, StackFileMade, Started, ZygoteGone, ZygoteReported
from rota_supervisor.process import UNREACHABLE

_SIGNALS: Final = {do.Order.LEAVE: signal.SIGTERM, do.Order.INTERRUPT: SOFT_LIMIT_SIGNAL, do.Order.KILL: signal.SIGKILL}
_SHOWN_BYTES: Final = 80


class ZygoteLine:
    """The master's end of the channel to one zygote. Sending a packet never blocks: packets that do not fit are sent
    later.

    `requested`: for each slot, the nonce of the worker that was last requested for it. A nonce is the random number
    that distinguishes the successive processes of a slot. `wake` is called when messages have arrived.
    """

    def __init__(self, child: ChildRef, generation: int, channel: socket.socket, wake: Callable[[], None]) -> None:
        self.child = child
        self.generation = generation
        self.requested: dict[int, int] = {}
        self._channel = channel
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._pool_settings: dict[str, str] = {}
        self.is_open = True
        asyncio.get_running_loop().add_reader(channel, wake)

    def send_slots(self, slots_fd: int) -> None:
        """Send the descriptor of the shared memory, which the zygote's workers need. If the master has no free
        descriptor for a copy, the message contains none, and the zygote exits."""
        self._send(messages.Slots(), _copy(slots_fd))

    def fork(self, pool_settings: str, request: messages.Fork, stack_fd: int | None) -> None:
        """Request a worker from the zygote, and pass this stack file to it. The settings of the worker's pool are sent
        first, unless the zygote already has them."""
        self.requested[request.slot] = request.nonce
        if self._pool_settings.get(request.pool) != pool_settings:
            self._pool_settings[request.pool] = pool_settings
            self._send(messages.PoolSettings(request.pool, pool_settings))
        # Queue a copy of the descriptor, because the file may be closed before the packet is sent.
        self._send(request, None if stack_fd is None else _copy(stack_fd))

    def bye(self) -> None:
        """Order the zygote to exit."""
        self._send(messages.Bye())

    def read(self) -> Iterator[messages.Message | None]:
        """Yield the messages that have arrived, without waiting for more. If the other end has been closed, yield None
        once."""
        while self.is_open:
            try:
                packet = self._channel.recv(messages.MAX_PACKET)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The zygote exited without reading all packets. This error is raised only once. The packets that the
                # zygote has sent can still be read.
                continue
            if not packet:
                self.close()
                yield None
                return
            yield _message_of(packet)

    def close(self) -> None:
        """Close the master's end of the channel. If no Bye was sent before, the zygote assumes that the master has
        died."""
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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # The zygote is dead. `read` will report this.
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
    """Decode a packet. A packet that is not valid becomes a warning. It must not end the master, because user code in
    the zygote may have written it."""
    try:
        return messages.decode_of_zygote(packet)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrote = f"{packet[:_SHOWN_BYTES]!r}, {len(packet)} bytes"
        return messages.Warned(f"a module wrote to descriptor {CHANNEL_FD}, which belongs to Rota: {wrote}")


def _login_fds() -> tuple[int, ...]:
    shared = fleet_login.shared
    return () if shared is None else (shared.to_read, shared.bell)


def _copy(fd: int) -> int | None:
    try:
        return os.dup(fd)
    except OSError:  # No file descriptor is left.
        return None


class Processes:
    """The operations on children.

    `happened` is called with the resulting events. `wake` is called when a zygote has sent a message. `listen_fd`
    returns the descriptor of the exporter's listening socket.
    """

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

    # Starts

    def spawn(self, effect: do.Spawn) -> None:
        """Start a zygote, a poller or the exporter."""
        child = effect.child
        self._memory.slot(child.slot).assign(child.nonce)
        stack_fd = self._make_stack(child)
        whose = child.role.value, self._node, os.getpid(), child.slot, child.nonce
        listen_fd = self._listen_fd() if child.role is Role.EXPORTER else None
        descriptors = messages.Descriptors(self._memory.fd, self._bell_fd, listen_fd, stack_fd, *_login_fds())
        try:
            started = self._spawner.start(child.role)
            greet(started, messages.First(*whose, effect.settings), descriptors)
        except OSError as error:
            self._happened(Started(child.slot, child.nonce, error=str(error)))
            return
        self._happened(Started(child.slot, child.nonce, started.pid))
        if child.role is Role.ZYGOTE:
            generation = effect.settings["generation"]
            line = ZygoteLine(child, generation, started.channel, self._wake)
            line.send_slots(self._memory.fd)
            self._zygotes.append(line)
        else:
            self._close_channel(child.slot)
            self._channels[child.slot] = started.channel

    def fork(self, effect: do.ForkWorker) -> None:
        """Prepare a slot for a worker, and request the worker from its zygote."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.assign(child.nonce, effect.concurrency)
        slot.renewed_ns = effect.renewed_ns
        slot.quiet_requested = effect.quiet
        line = self._line_to(effect.zygote)
        assert line is not None, "a READY zygote has a channel"
        request = messages.Fork(child.slot, child.nonce, effect.owner, effect.pool)
        line.fork(effect.settings, request, self._make_stack(child))

    def _make_stack(self, child: ChildRef) -> int | None:
        fd = self.stacks.make(child)
        if fd is not None:
            self._happened(StackFileMade(child.slot, child.nonce))
        return fd

    # Signals

    def signal_child(self, effect: do.SignalChild) -> None:
        """Send a signal to a child. KILL is also sent to its whole process group.

        A zygote blocks its signals, so a Bye is sent instead of TERM. If the pid of a child is not known yet, no signal
        is sent. If such a child is to be killed, the core kills it when its pid is reported.
        """
        child = effect.child
        order = effect.order
        line = self._line_to(child) if order is do.Order.LEAVE else None
        if line is not None:
            line.bye()
        elif order is do.Order.WRITE_STACK:
            self.stacks.request(child)
        elif child.pid:
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, _SIGNALS[order])
            if order is do.Order.KILL:
                kill_group(child.pid)

    def set_quiet(self, effect: do.SetQuiet) -> None:
        """Write the quiet flag into the slots, and wake the workers so that they read it.

        A worker that has not entered its slot yet reads the flag when it starts.
        """
        for child in effect.children:
            slot = self._memory.slot(child.slot)
            if slot.nonce != child.nonce:
                continue
            slot.quiet_requested = effect.quiet
            # A worker writes its pid into the slot before the master learns the pid from the zygote, so an unknown pid
            # is taken from the slot. A known pid must match, because a task may have written anything into the slot.
            pid = slot.pid
            if pid and child.pid in (0, pid):
                with contextlib.suppress(*UNREACHABLE):
                    os.kill(pid, WAKE_SIGNAL)

    def notify_cancelled(self, effect: do.NotifyCancelled) -> None:
        """Mark a running task as cancelled in its worker's slot. Then send the signal that makes the worker read the
        mark. The mark names this one run of a task, so a task that begins later is not affected."""
        slot = self._memory.slot(effect.child.slot)
        if slot.nonce == effect.child.nonce:
            slot.record(effect.task_index).cancelled = effect.number
            self.signal_child(do.SignalChild(effect.child, do.Order.INTERRUPT))

    # Messages

    def receive(self) -> Iterator[Event]:
        """Yield the events that have arrived from zygotes and from the short-lived processes with which they fork
        workers."""
        for line in list(self._zygotes):
            for message in line.read():
                yield from self._events_of(line, message)
        self._zygotes = [line for line in self._zygotes if line.is_open]

    def _events_of(self, line: ZygoteLine, message: messages.Message | None) -> Iterator[Event]:
        """Yield the events that follow from a message of a zygote.

        The process that a zygote forks to start a worker can die after the worker has started, but before it has
        reported the worker. The message then suggests that the worker was not started, although the worker's slot
        contains its pid. In this case, the first event reports the worker as started.
        """
        match message:
            case None:
                for slot, nonce in line.requested.items():
                    yield from self._unreported_worker(slot, nonce)
                yield ZygoteGone(line.child.slot, line.child.nonce)
            case messages.ForkFailed(slot, nonce):
                yield from self._unreported_worker(slot, nonce)
                yield ZygoteReported(line.generation, message)
            case _:
                yield ZygoteReported(line.generation, message)

    def _unreported_worker(self, slot: int, nonce: int) -> Iterator[Event]:
        seen = self._memory.slot(slot)
        if seen.nonce == nonce and seen.pid > 1:
            yield ZygoteReported(0, messages.Spawned(slot, nonce, seen.pid))

    def _line_to(self, zygote: ChildRef) -> ZygoteLine | None:
        return next((line for line in self._zygotes if line.child.nonce == zygote.nonce), None)

    # Cleanup

    def free_slot(self, effect: do.FreeSlot) -> None:
        """Reset the slot of a child. If the child's process starts after that, it does not find its own nonce (random
        number) in the slot, and exits."""
        self._memory.slot(effect.slot).assign(0)

    def close_channels(self, effect: do.CloseChannels) -> None:
        """Close a child's channel and stack file. A zygote's channel stays open until its intermediates have ended."""
        if effect.child.role is not Role.ZYGOTE:
            self._close_channel(effect.child.slot)
        self.stacks.close(effect.child)

    def _close_channel(self, slot: int) -> None:
        channel = self._channels.pop(slot, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all channels and stack files. Zygotes then assume that the master has died."""
        for line in self._zygotes:
            line.close()
        for channel in self._channels.values():
            channel.close()
        self.stacks.close_all()


def kill_group(pid: int) -> None:
    """Send SIGKILL to the remaining processes of a child's process group.

    The caller must know that the group id still belongs to the child. This is the case until the child is reaped.
    """
    with contextlib.suppress(*UNREACHABLE):
        os.killpg(pid, signal.SIGKILL)


def bell_fd(rung: Callable[[], None]) -> int:
    """Return an eventfd to which children write if the master should read their slots. `rung` is called after each
    write."""
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def drain() -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(fd)
        rung()

    asyncio.get_running_loop().add_reader(fd, drain)
    return fd


# Stack files. Each living child has a memfd to which it writes its stacks, and which only the master reads. The child
# and the master share the open file description, so the file's offset shows how much the child has written since the
# master last set the offset to 0. The size is sealed, so the child cannot write beyond the end. For each file, the
# master uses one descriptor, and 4 kB of memory once the child has written to it.


FILE_BYTES: Final = 64 << 10  # uses memory only as far as it is filled; the stacks of 100 frames take 8 kB
SPARE_DESCRIPTORS: Final = 64  # number of descriptors to keep for channels, connections and other files of the master
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def name_of(child: ChildRef) -> str:
    """Return the name of a child's stack file. The name contains the nonce of the child, so that it also identifies the
    processes that the child leaves behind."""
    return f"{STACK_FILE}-{child.slot}-{child.nonce}"


class Stacks:
    """The stack file of each child. `memory`: the slots, which show whether a child can receive the signal."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._files: dict[int, int] = {}

    def make(self, child: ChildRef) -> int | None:
        """Create the stack file of a child that is about to start. Returns None if too few descriptors are left."""
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

    def request(self, child: ChildRef) -> bool:
        """Make a child write its stacks, which takes about a millisecond. Returns False if the child is not able to
        write them yet."""
        fd = self._files.get(child.nonce)
        slot = self._memory.slot(child.slot)
        # A child that has not entered its slot yet has no handler, so that the signal would end the child.
        has_handler = child.pid != 0 and slot.nonce == child.nonce and slot.pid == child.pid
        if fd is None or not has_handler:
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        with contextlib.suppress(*UNREACHABLE):
            os.kill(child.pid, STACK_SIGNAL)
        return True

    def request_task_stacks(self, child: ChildRef) -> None:
        """Make a worker that runs several tasks log the stack of each task. The worker does this at the next step of
        its event loop."""
        slot = self._memory.slot(child.slot)
        if slot.concurrency > 1 and child.pid and slot.nonce == child.nonce and slot.pid == child.pid:
            slot.stacks_requested += 1
            with contextlib.suppress(*UNREACHABLE):
                os.kill(child.pid, WAKE_SIGNAL)

    def text(self, child: ChildRef) -> str:
        """Return the text that a child has written to its stack file since the last request or the last read."""
        fd = self._files.get(child.nonce)
        if fd is None:
            return ""
        # A task may have moved the file offset to any position.
        written = os.pread(fd, min(os.lseek(fd, 0, os.SEEK_CUR), FILE_BYTES), 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return written.decode(errors="replace")

    def close(self, child: ChildRef) -> None:
        """Close the file of a child that no longer exists."""
        fd = self._files.pop(child.nonce, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        """Close all files."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
