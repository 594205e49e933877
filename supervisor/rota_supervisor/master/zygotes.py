"""The master's end of a zygote's channel: packets out without ever blocking, packets in when there are any."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterator

from rota_supervisor import messages
from rota_supervisor.master.children import Child


class ZygoteLine:
    """One zygote's channel. `wake` is called when there is something to `read`."""

    def __init__(self, child: Child, channel: socket.socket, wake: Callable[[], None]) -> None:
        self.child = child
        self._channel = channel
        self._outbox: deque[bytes] = deque()
        self._told: dict[str, str] = {}
        self.is_open = True
        asyncio.get_running_loop().add_reader(channel, wake)

    def fork(self, pool_settings: str, request: messages.Fork) -> None:
        """Ask for a worker, telling the settings of its pool first when they are new."""
        if self._told.get(request.pool) != pool_settings:
            self._told[request.pool] = pool_settings
            self._send(messages.Pool(request.pool, pool_settings))
        self._send(request)

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
            except ConnectionResetError:
                packet = b""
            if not packet:
                self.close()
                yield None
                return
            yield messages.decode(packet)

    def close(self) -> None:
        """Close our end; without a Bye the zygote takes us for dead."""
        if not self.is_open:
            return
        self.is_open = False
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        loop.remove_writer(self._channel)
        self._channel.close()

    def _send(self, message: messages.Message) -> None:
        if not self.is_open:
            return
        self._outbox.append(messages.encode(message))
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead: `read` sees the end
            while self._outbox:
                try:
                    self._channel.send(self._outbox[0], socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    loop.add_writer(self._channel, self._flush)
                    return
                self._outbox.popleft()
        loop.remove_writer(self._channel)
