"""The master's end of a zygote's channel: packets out without ever blocking, packets in when there are any."""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from rota_supervisor import messages
from rota_supervisor.layout import CHANNEL_FD
from rota_supervisor.master.core.children import ChildRef

_SHOWN_BYTES: Final = 80


class ZygoteLine:
    """One zygote's channel. `asked`: by slot the life for which the zygote was asked last. `wake` is called when there
    is something to `read`."""

    def __init__(self, child: ChildRef, generation: int, channel: socket.socket, wake: Callable[[], None]) -> None:
        self.child = child
        self.generation = generation
        self.asked: dict[int, int] = {}
        self._channel = channel
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._told: dict[str, str] = {}
        self.is_open = True
        asyncio.get_running_loop().add_reader(channel, wake)

    def lend(self, slots_fd: int) -> None:
        """Give it the memory of the slots for its workers. It leaves when there is no descriptor left for that."""
        self._send(messages.Slots(), _copy(slots_fd))

    def fork(self, pool_settings: str, request: messages.Fork, stack_fd: int | None) -> None:
        """Ask for a worker with that stack file, telling the settings of its pool first when they are new."""
        self.asked[request.slot] = request.nonce
        if self._told.get(request.pool) != pool_settings:
            self._told[request.pool] = pool_settings
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


def _copy(fd: int) -> int | None:
    try:
        return os.dup(fd)
    except OSError:  # no descriptor is left
        return None
