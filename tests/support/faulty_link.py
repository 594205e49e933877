"""A TCP proxy that simulates a bad network: it cuts and refuses connections, swallows, holds back and delays data, and
loses single replies.

The proxy is an asyncio loop in a separate thread. Every method may be called from any thread, and has taken effect when
it returns. Bytes in one direction of a connection are never reordered, and never delivered after a gap. A direction
that has swallowed bytes stays silent until its connection is cut.

Replies are matched to requests by counting, because requests and replies of a connection have the same order. A request
has the name of its script, for example "turn", or the first word of a plain command, for example "blpop".
"""

import asyncio
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Self, TypeVar

import hiredis

from support.faulty_pipes import SCRIPTS, Fault, Loss, Pipe, Side, name_of

T = TypeVar("T")

_MORE: Final = object()
_BACKLOG: Final = 1024


class FaultyLink:
    """A proxy to the server on `port` of this machine.

    `attempts` lists the monotonic times of all connection attempts, including refused ones. `calls` counts the requests
    that reached the server, by name, and `lost` counts the dropped replies. `gate(name, is_reply, port)`, if set, is
    called in the link's thread before a request or its reply is forwarded, and must not block. If it returns False, the
    connection of the client with that port is held in this direction until `heal` is called.
    """

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.attempts: list[float] = []
        self.calls: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.refusing = False
        self.gate: Callable[[str, bool, int], bool] | None = None
        # The faults of the two directions: requests (True) and replies (False).
        self.faults: dict[bool, Fault] = {True: Fault(), False: Fault()}
        self._to_lose: list[Loss] = []
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-link", daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def requests(self) -> int:
        """The number of script calls that reached the server."""
        return sum(self.calls[name] for name in SCRIPTS.values())

    @property
    def commands(self) -> int:
        """The number of requests of any kind that reached the server."""
        return sum(self.calls.values())

    @property
    def connections(self) -> int:
        """The current number of connections."""
        return len(self._connections)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Connection(self).client, sock=self._listener)

    async def _close(self) -> None:
        self._server.close()
        self._reset_all()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)  # let the transports run their last callbacks

    # Faults, which any thread may set

    def point_at(self, port: int) -> None:
        """Forward new connections to another server."""
        self.server_port = port

    def refuse(self, on: bool = True) -> None:
        """Reset each new connection as soon as it is established."""
        self._now(lambda: setattr(self, "refusing", on))

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        self._now(self._reset_all)

    def silence(self, *, requests: bool = False, replies: bool = False) -> None:
        """Swallow all data in a direction, even the ends of connections, so that the connections become half-open."""
        self._fault(silent=(requests, replies))

    def hold(self, *, requests: bool = False, replies: bool = False) -> None:
        """Hold back all data in a direction until `heal`. Data then also arrives from clients that have given up in the
        meantime.
        """
        self._fault(held=(requests, replies))

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Delay each piece of data by `seconds` in each direction, plus a random time of up to `jitter` seconds."""
        self._fault(delay_seconds=(seconds, seconds), jitter_seconds=(jitter, jitter))

    def stall_some(self, share: float, seconds: float = 0.5) -> None:
        """Delay this share of the pieces of data, and everything behind them, as if the network had lost these pieces
        and TCP had sent them again.
        """
        self._fault(stalled_share=(share, share), stall_seconds=(seconds, seconds))

    def lose_replies(self, count: int, *, of: str | None = None, cut: bool = True) -> None:
        """Lose the next `count` replies: deliver each request, drop the piece of data that contains its reply, and cut
        the connection or leave it silent. If `of` is given, only replies to requests with this name are lost. Otherwise
        replies to all scripts are lost. NOSCRIPT errors do not count.
        """
        self._now(lambda: self._to_lose.append(Loss(of, count, cut)))

    def heal(self) -> None:
        """End all faults: deliver held data, and reset connections that lost data."""
        self._now(self._heal)

    # Methods that run in the link's event loop

    def _now(self, order: Callable[[], T]) -> T:
        async def obey() -> T:
            return order()

        return asyncio.run_coroutine_threadsafe(obey(), self._loop).result()

    def _fault(self, **values: tuple[float, float]) -> None:
        def apply() -> None:
            for key, (of_requests, of_replies) in values.items():
                setattr(self.faults[True], key, of_requests)
                setattr(self.faults[False], key, of_replies)
            for connection in self._connections:
                connection.flush()

        self._now(apply)

    def _heal(self) -> None:
        self.refusing, self.gate = False, None
        self.faults = {True: Fault(), False: Fault()}
        self._to_lose.clear()
        for connection in list(self._connections):
            connection.heal()

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    def opened(self, connection: "_Connection") -> bool:
        """Record a new connection. Return whether it is accepted."""
        self.attempts.append(time.monotonic())
        if self.refusing:
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: "_Connection") -> None:
        """Record the end of a connection."""
        self._connections.discard(connection)

    def loss_for(self, name: str) -> "Loss | None":
        """Return the loss that a test has ordered for the reply to this request, or None. The returned loss is then
        used up.
        """
        for loss in self._to_lose:
            if loss.of == name or (loss.of is None and name in SCRIPTS.values()):
                loss.count -= 1
                if not loss.count:
                    self._to_lose.remove(loss)
                self.lost[name] += 1
                return loss
        return None


class _Connection:
    """A client's connection, and the link's own connection to the server, to which the client's data is forwarded."""

    def __init__(self, link: FaultyLink) -> None:
        self._link = link
        self.client = Side(self._from_client, self._accepted)
        self.server = Side(self._from_server, self._connected)
        self.client.other, self.server.other = self.server, self.client
        self._requests = Pipe(lambda: link.faults[True], self.server)
        self._replies = Pipe(lambda: link.faults[False], self.client)
        self._replies.open = True
        self._pending: deque[str] = deque()
        self._request_reader = hiredis.Reader(notEnoughData=_MORE)
        self._reply_reader = hiredis.Reader(notEnoughData=_MORE)
        self._readable = True
        self._over = False

    def _accepted(self) -> None:
        assert self.client.transport is not None
        self._port = self.client.transport.get_extra_info("peername")[1]
        if self._link.opened(self):
            self._connecting = asyncio.ensure_future(self._connect())
        else:
            self.client.reset()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.server, "127.0.0.1", self._link.server_port)
        except OSError:
            self.reset()

    def _connected(self) -> None:
        if self._over:
            self.server.reset()
        self._requests.open = True
        self._requests.flush()

    def _from_client(self, data: bytes) -> None:
        if data and self._readable:
            self._note(self._request_reader, data, self._note_request)
        self._requests.feed(data)
        self._check_end(data)

    def _from_server(self, data: bytes) -> None:
        loss = self._loss_in(data)
        if loss is None:
            self._replies.feed(data)
            self._check_end(data)
        elif loss.cut:
            self.reset()
        else:
            self._replies.drop()

    def _loss_in(self, data: bytes) -> Loss | None:
        losses: list[Loss] = []
        if data and self._readable:
            self._note(self._reply_reader, data, lambda reply: losses.extend(self._losses_in(reply)))
        return losses[0] if losses else None

    def _note(self, reader: hiredis.Reader, data: bytes, each: Callable[[object], None]) -> None:
        try:
            reader.feed(data)
            while (item := reader.gets()) is not _MORE:
                each(item)
        except hiredis.ProtocolError:  # inline commands are forwarded but not identified
            self._readable = False

    def _note_request(self, request: object) -> None:
        if not request:  # an empty request, to which the server does not reply
            return
        name = name_of(request)
        self._pending.append(name)
        self._check_gate(name, self._requests, is_reply=False)
        if not (self._requests.broken or self._link.faults[True].silent):
            self._link.calls[name] += 1

    def _check_gate(self, name: str, pipe: Pipe, *, is_reply: bool) -> None:
        if self._link.gate is not None and not self._link.gate(name, is_reply, self._port):
            pipe.held = True

    def _losses_in(self, reply: object) -> list[Loss]:
        if isinstance(reply, hiredis.PushNotification) or not self._pending:
            return []
        name = self._pending.popleft()
        self._check_gate(name, self._replies, is_reply=True)
        unknown = isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")
        loss = None if unknown else self._link.loss_for(name)
        return [loss] if loss else []

    def _check_end(self, data: bytes) -> None:
        if not data and self.client.transport is None and self.server.transport is None:
            self._link.closed(self)

    def reset(self) -> None:
        """Reset both sides now."""
        self._over = True
        self._requests.drop()
        self._replies.drop()
        self.client.reset()
        self.server.reset()
        self._link.closed(self)

    def heal(self) -> None:
        """Reset the connection if data was swallowed, otherwise deliver all waiting data."""
        if self._requests.broken or self._replies.broken:
            self.reset()
            return
        self._requests.held = self._replies.held = False
        self.flush(all_of_it=True)

    def flush(self, *, all_of_it: bool = False) -> None:
        """Deliver the data that is due, or all waiting data."""
        self._requests.flush(all_of_it=all_of_it)
        self._replies.flush(all_of_it=all_of_it)
