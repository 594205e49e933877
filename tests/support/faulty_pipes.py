"""The parts of a faulty link: the two sockets of each connection, and the two directions of the connection with their
faults.
"""

import asyncio
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.protocol.scripts import load_script, script_names, sha1_of

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER with a timeout of 0 makes close() send a TCP reset


SCRIPTS: Final = {load_script(name).sha: name for name in script_names()}


def name_of(request: object) -> str:
    """Return the script's name, or the first word of a plain command."""
    if not isinstance(request, list) or not request:
        return "?"
    word = bytes(request[0]).lower()
    if word == b"evalsha":
        return SCRIPTS.get(request[1], "evalsha")
    if word == b"eval":
        return SCRIPTS.get(sha1_of(request[1]).encode(), "eval")
    return word.decode(errors="replace")


@dataclass
class Fault:
    """The faults that apply to one direction, requests or replies, of all connections."""

    silent: float = False
    held: float = False
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    stalled_share: float = 0.0
    stall_seconds: float = 0.0

    def lateness_seconds(self) -> float:
        """Return the delay of the next piece of data in seconds, including the random part."""
        late = self.delay_seconds + random.uniform(0, self.jitter_seconds)
        return late + (self.stall_seconds if random.random() < self.stalled_share else 0.0)

    @property
    def is_slow(self) -> bool:
        return bool(self.delay_seconds or self.jitter_seconds or self.stalled_share)


@dataclass
class Loss:
    """An order to lose the next `count` replies to requests with the name `of`. If `of` is None, replies to any script
    are lost. If `cut` is set, each loss also cuts the connection.
    """

    of: str | None
    count: int
    cut: bool


class Side(asyncio.Protocol):
    """One of the two sockets of a connection. `take` is called with the data that the socket reads, and with b"" at the
    end.
    """

    def __init__(self, take: Callable[[bytes], None], made: Callable[[], None]) -> None:
        self._take = take
        self._made = made
        self.other: Side | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._made()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        self._take(b"")

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def put(self, data: bytes) -> None:
        """Write the data, or close the socket if the data is empty."""
        if self.transport is not None:
            if data:
                self.transport.write(data)
            else:
                self.transport.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        if self.transport is not None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class Pipe:
    """One direction of a connection, which delivers its data in order. The pipe is `open` once its other side is
    connected. Until then, all data waits. The pipe is `broken` if it has swallowed data. It then delivers nothing more,
    because no data may follow a gap. It is `held` if the gate holds back its data.
    """

    def __init__(self, fault: Callable[[], Fault], to: Side) -> None:
        self._fault = fault
        self._to = to
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.open = self.broken = self.held = False

    def feed(self, data: bytes) -> None:
        fault = self._fault()
        if self.broken or fault.silent:
            self.broken = True
        elif self.open and not (self.held or fault.held or fault.is_slow or self._waiting):
            self._to.put(data)
        else:
            due = time.monotonic() + fault.lateness_seconds()
            self._waiting.append((max(due, self._waiting[-1][0]) if self._waiting else due, data))
            self.flush()

    def flush(self, *, all_of_it: bool = False) -> None:
        """Deliver the data that is due, and schedule the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.open or self.held or self._fault().held:
            return
        now = time.monotonic()
        while self._waiting and (all_of_it or self._waiting[0][0] <= now):
            self._to.put(self._waiting.popleft()[1])
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._waiting[0][0] - now, self.flush)

    def drop(self) -> None:
        """Discard the waiting data."""
        self.broken = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
