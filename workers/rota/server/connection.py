"""One blocking connection to the server, of our own.

It packs its own commands, reads with hiredis, and repeats nothing behind the caller's back: a claim sent
twice by a helpful client is a task held by nobody. The one exception is NOSCRIPT, which says that nothing
was executed. Every wait has a deadline and goes through the `wait` given at the start, so that a worker can
watch its master's death pipe meanwhile.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hiredis

from rota.protocol.store import Command
from rota.protocol.wire import Arg, command, pack
from rota.server.address import Address
from rota.server.server_errors import (
    REASON_NETWORK,
    REASON_PROTOCOL,
    REASON_SILENT,
    ConnectionLost,
    Refused,
    ServerError,
    UnknownScript,
    error_of_reply,
    read_reply,
)

if TYPE_CHECKING:
    from ssl import SSLSocket

T = TypeVar("T")

Wait = Callable[[int, int, float], bool]
"""`wait(fd, events, seconds)`: whether one of poll()'s `events` came in time. May raise to give up."""

NO_REPLY: Final = object()
_READ_BYTES: Final = 1 << 16
# Errors of TLS, by name as ssl is imported only with TLS, and the poll() event each waits for.
_TLS_WANTS: Final = {"SSLWantReadError": select.POLLIN, "SSLWantWriteError": select.POLLOUT}
# A dead peer is noticed after 10 + 3 x 3 seconds even by a connection that only listens.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 3), (socket.TCP_KEEPCNT, 3))


def wait_for(fd: int, events: int, seconds: float) -> bool:
    """The plain `Wait`: poll() on the one descriptor."""
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(max(0.0, seconds) * 1000))


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """`name` for CLIENT LIST; how long to wait for a connection and for a reply; how to wait."""

    name: str = "rota"
    connect_seconds: float = 5.0
    read_seconds: float = 5.0
    wait: Wait = wait_for


DEFAULT_OPTIONS: Final = ConnectionOptions()


class Connection:
    """A connection, made and greeted by the constructor; after a `ConnectionLost` make a new one."""

    def __init__(self, address: Address, options: ConnectionOptions = DEFAULT_OPTIONS) -> None:
        """Connect, authenticate, select the database. Raises ServerError."""
        self._options = options
        self._reader = hiredis.Reader(replyError=error_of_reply, notEnoughData=NO_REPLY)
        self._socket = _connect(address, options)
        try:
            self._greet(address)
        except BaseException:  # whatever it was, the socket must not leak
            self.close()
            raise

    # What most callers use

    def run(self, call: Command[T]) -> T:
        """Run a script and parse its answer. Raises ServerError."""
        try:
            raw = self._ask(call.by_sha())
        except UnknownScript:
            raw = self._ask(call.by_text())
        return read_reply(call, raw)

    def execute(self, *args: Arg) -> Any:
        """Run a plain command; the reply as hiredis reads it. Raises ServerError."""
        return self._ask(command((pack(args),)))

    def use(self, options: ConnectionOptions) -> None:
        """Go on with these options, after a greeting that had to be quick."""
        self._options = options

    def close(self) -> None:
        """Close at once. May be repeated."""
        self._socket.close()

    # Sending and receiving apart, for a command that is parked in the server

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send a command in wire form. Raises ConnectionLost."""
        rest = memoryview(data)
        while rest:
            try:
                sent = self._socket.send(rest)
            except OSError as error:
                self._wait(_wanted(error, select.POLLOUT), "to take a command")
                continue
            rest = rest[sent:]

    def try_receive(self) -> Any:
        """The next reply if it has come, else NO_REPLY. Raises ServerError: error replies too."""
        reply = self._next_reply()
        while reply is NO_REPLY:
            data = self._read()
            if data is None:
                return NO_REPLY
            self._reader.feed(data)
            reply = self._next_reply()
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def receive(self) -> Any:
        """Wait for the next reply, at most `read_seconds` from one piece of it to the next. Raises ServerError."""
        while (reply := self.try_receive()) is NO_REPLY:
            self._wait(select.POLLIN, "to answer")
        return reply

    def _ask(self, data: bytes) -> Any:
        self.send(data)
        return self.receive()

    def _next_reply(self) -> Any:
        try:
            return self._reader.gets()
        except hiredis.ProtocolError as error:
            raise ConnectionLost(f"the server answered something that is not RESP: {error}", REASON_PROTOCOL) from error

    def _read(self) -> bytes | None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            if _wanted(error, select.POLLIN) == select.POLLOUT:  # TLS must write before it can read on
                self._wait(select.POLLOUT, "to go on with TLS")
            return None
        if not data:
            raise ConnectionLost("the server closed the connection", REASON_NETWORK)
        return data

    def _wait(self, events: int, what: str) -> None:
        seconds = self._options.read_seconds
        if not self._options.wait(self.fileno(), events, seconds):
            raise ConnectionLost(f"the server took longer than {seconds:g} s {what}", REASON_SILENT)

    def _greet(self, address: Address) -> None:
        commands = list(_greetings(address))
        naming = ("CLIENT", "SETNAME", self._options.name)
        self.send(b"".join(command((pack(args),)) for args in (*commands, naming)))
        for _ in commands:
            self.receive()
        with suppress(Refused):  # the name is for people who read CLIENT LIST; an ACL or a proxy may not have it
            self.receive()


def _greetings(address: Address) -> Iterator[tuple[Arg, ...]]:
    if address.username or address.password:
        yield ("AUTH", address.username or "default", address.password)
    if address.database:
        yield ("SELECT", address.database)


def _wanted(error: OSError, otherwise: int) -> int:
    # Which poll() event a would-block error waits for.
    if isinstance(error, BlockingIOError):
        return otherwise
    wanted = _TLS_WANTS.get(type(error).__name__)
    if wanted is None:
        raise ConnectionLost(f"the connection broke: {error}", REASON_NETWORK) from error
    return wanted


# Connecting


def _connect(address: Address, options: ConnectionOptions) -> socket.socket:
    try:
        if address.path:
            return _connect_one(socket.AF_UNIX, address.path, options)
        return _connect_tcp(address, options)
    except OSError as error:
        place = address.path or f"{address.host}:{address.port}"
        raise ConnectionLost(f"no connection to {place}: {error.strerror or error}", REASON_NETWORK) from error


def _connect_tcp(address: Address, options: ConnectionOptions) -> socket.socket:
    """The limit of `connect_seconds` holds for each address of the host in turn, and for the TLS handshake.

    It does not hold for the resolver, which nothing but a thread could leave behind: a name is looked up for as long as
    resolv.conf allows (`timeout` times `attempts` times servers; by default 10 s for one server that is silent).
    """
    failure: OSError = OSError("the name has no address")
    for family, _, _, _, place in socket.getaddrinfo(_resolvable(address.host), address.port, type=socket.SOCK_STREAM):
        try:
            made = _connect_one(family, place, options)
        except OSError as error:
            failure = error
            continue
        return _secure(_kept_alive(made), address, options) if address.tls else _kept_alive(made)
    raise failure


def _resolvable(host: str) -> str | bytes:
    # As text even a plain name would load the IDNA codec: 1.4 MB in each process.
    return host.encode() if host.isascii() else host


def _kept_alive(made: socket.socket) -> socket.socket:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _connect_one(family: int, place: Any, options: ConnectionOptions) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        _finish_connecting(made, made.connect_ex(place), options)
    except BaseException:  # the wait may raise what its owner likes; the socket must not leak
        made.close()
        raise
    return made


def _finish_connecting(made: socket.socket, code: int, options: ConnectionOptions) -> None:
    if code == errno.EINPROGRESS:
        if not options.wait(made.fileno(), select.POLLOUT, options.connect_seconds):
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came within {options.connect_seconds:g} s")
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _secure(made: socket.socket, address: Address, options: ConnectionOptions) -> socket.socket:
    import ssl  # noqa: PLC0415 - 2 MB that only TLS needs

    try:
        context = ssl.create_default_context()
        secured = context.wrap_socket(made, server_hostname=address.host, do_handshake_on_connect=False)
    except BaseException:
        made.close()
        raise
    try:
        _shake_hands(secured, options)
    except BaseException:  # as in _connect_one
        secured.close()
        raise
    return secured


def _shake_hands(secured: "SSLSocket", options: ConnectionOptions) -> None:
    deadline = time.monotonic() + options.connect_seconds
    while True:
        try:
            secured.do_handshake()
        except OSError as error:
            events = _TLS_WANTS.get(type(error).__name__)
            if events is None:
                raise
            if not options.wait(secured.fileno(), events, deadline - time.monotonic()):
                raise TimeoutError(errno.ETIMEDOUT, f"no TLS within {options.connect_seconds:g} s") from None
        else:
            return
