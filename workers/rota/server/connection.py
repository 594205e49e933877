"""Rota's own blocking connection to the server. Its commands and replies are defined in `session`. Every wait has a
deadline and uses the function `wait` from the connection options. In a worker, that function also watches the death
pipe."""

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rota.protocol.scripts import ScriptCall
from rota.protocol.wire import Arg, command, pack
from rota.server import server_errors as errors
from rota.server.address import Address
from rota.server.logins import Login, Renewal
from rota.server.primary_search import Query, ReplyOrError, search
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError
from rota.server.session import (
    NO_REPLY,
    READ_BYTES,
    NoHandshake,
    Session,
    connection_fault,
    greeting,
    greeting_fault,
    tls_context,
)

if TYPE_CHECKING:
    from ssl import SSLSocket

T = TypeVar("T")

Wait = Callable[[int, int, float], bool]
"""`wait(fd, events, seconds)` returns whether one of poll()'s `events` occurred in time. It may raise to give up."""

# The usual timeout of a blocking command, for example of a wait at a doorbell.
PARK_SECONDS: Final = 5  # whole seconds
# The timeout in a process that also checks in another way, every PARK_SECONDS, whether the server is alive.
LONG_PARK_SECONDS: Final = 20
EARLY_SECONDS: Final = 0.005  # the server may end a blocking command by this much before its timeout
NUDGE: Final = b"*0\r\n"
"""An empty command, which the server ignores. An idle server checks its timers every 0.1 s, so a parked command may end
up to 0.1 s late. The server also checks its timers whenever it has read data, even from a blocked connection."""
# How late the reply to a blocking command may be. The timers of the server cause up to 0.1 s of this, and the rest is
# for a busy server.
GRACE_SECONDS: Final = 3.0
# The poll() event to wait for after each TLS error. The keys are the names of the errors, because ssl is imported only
# if TLS is used.
_TLS_WANTS: Final = {"SSLWantReadError": select.POLLIN, "SSLWantWriteError": select.POLLOUT}
# With keepalive, the kernel notices a network path that drops packets about as fast as a command with a short timeout
# would. If sent data is not acknowledged, the kernel gives the connection up after the user timeout, which is in
# milliseconds. If the connection only receives, the kernel gives it up at the first probe after that time. That is the
# third probe, after 7 s. (With a user timeout, Linux ignores the number of probes.)
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 3),
    (socket.TCP_KEEPINTVL, 2),
    (socket.TCP_USER_TIMEOUT, 6500),
)


def wait_for(fd: int, events: int, seconds: float) -> bool:
    """Wait with poll() for one of the events on a descriptor. This is the default `Wait` function."""
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(max(0.0, seconds) * 1000))


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a connection."""

    name: str = "rota"  # name of the connection in CLIENT LIST
    connect_seconds: float = 5.0  # how long an attempt to connect may take
    read_seconds: float = 5.0  # how long a reply may take
    wait: Wait = wait_for


DEFAULT_OPTIONS: Final = ConnectionOptions()


class Connection:
    """A blocking connection. The constructor connects and sends the greeting. After a `ConnectionLost`, the caller has
    to make a new connection."""

    renewal: Renewal | None = None

    def __init__(self, address: Address, options: ConnectionOptions = DEFAULT_OPTIONS) -> None:
        """Connect, authenticate and select the database. Raises ServerError if that fails."""
        self.address = address
        self._options = options
        self._session = Session()
        login = address.login()
        self._socket = _connect(address, options)
        try:
            self._greet(address, login)
        except ConnectionLost as error:
            self.close()
            raise greeting_fault(error, address) from error
        except BaseException:  # catch everything, because the socket must not leak
            self.close()
            raise

    def run(self, call: ScriptCall[T]) -> T:
        """Run a script and parse its reply. Raises ServerError if it fails."""
        try:
            raw = self._query(call.by_sha())
        except errors.UnknownScript:
            raw = self._query(call.by_text())
        return errors.read_reply(call, raw)

    def execute(self, *args: Arg) -> Any:
        """Run a Redis command and return the reply as hiredis parses it. Raises ServerError if it fails."""
        return self._query(command((pack(args),)))

    @property
    def is_to_renew(self) -> bool:
        """Whether the connection should be replaced because the password that it was made with expires soon."""
        return self.renewal is not None and self.renewal.is_due

    def use(self, options: ConnectionOptions) -> None:
        """Use these options from now on. A search for the primary connects with short time limits, and then sets the
        usual options."""
        self._options = options

    def give_back(self) -> None:
        """Return a borrowed connection to its pool. If the connection is Rota's own, close it."""
        self.close()

    def close(self, *, everywhere: bool = False) -> None:
        """Close the connection at once. It may already be closed. With `everywhere`, the connection ends in all
        processes that share it, and calls of other threads that wait on it raise ConnectionLost."""
        if everywhere:
            with suppress(OSError):  # the connection may have ended already
                # Call the `shutdown` of the plain socket. SSLSocket's `shutdown` would first drop TLS, and if another
                # thread sent data after that, the data would be plain text.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket, so that the caller can wait for data."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send a command in wire form. Raises ConnectionLost if that fails."""
        rest = memoryview(data)
        while rest:
            try:
                sent = self._socket.send(rest)
            except OSError as error:
                self._wait(_wanted(error, select.POLLOUT), "accept a command")
                continue
            rest = rest[sent:]

    def try_receive(self) -> Any:
        """Return the next reply if all of it has arrived, or else NO_REPLY. Raises ServerError if the connection fails
        or the reply is an error."""
        while (reply := self._session.reply()) is NO_REPLY and self._read():
            pass
        return reply

    def receive(self) -> Any:
        """Wait for the next reply and return it. Each piece of the reply may take up to `read_seconds` to arrive.
        Raises ServerError if the connection fails or the reply is an error."""
        while (reply := self._session.reply()) is NO_REPLY:
            # Wait before the first read, because a reply has hardly ever arrived by now.
            self._wait(select.POLLIN, "reply")
            self._read()
        return reply

    def _read(self) -> bool:
        """Read the data that has arrived. Returns False if no data has arrived."""
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            if _wanted(error, select.POLLIN) == select.POLLOUT:  # TLS must write something before it can read more
                self._wait(select.POLLOUT, "continue with TLS")
            return False
        self._session.take(data)
        return True

    def _query(self, data: bytes) -> Any:
        self.send(data)
        return self.receive()

    def _wait(self, events: int, what: str) -> None:
        seconds = self._options.read_seconds
        fd = self.fileno()
        if fd < 0:
            raise ConnectionLost("the connection was closed", REASON_NETWORK)
        if not self._options.wait(fd, events, seconds):
            raise ConnectionLost(f"the server did not {what} within {seconds:g} s", REASON_SILENT)

    def _greet(self, address: Address, login: Login) -> None:
        commands = greeting(address, login, self._options.name)
        self.send(b"".join(commands))
        for _ in commands[1:]:
            self.receive()
        with suppress(errors.Refused):
            self.receive()
        self.renewal = address.renewal_of(login)


def silence_error(seconds: float) -> ConnectionLost:
    """Return the error for a blocking command, such as BLPOP, whose timeout of `seconds` passed, and GRACE_SECONDS
    more, without a reply."""
    return ConnectionLost(f"the server did not reply to a blocking command of {seconds:g} s", REASON_SILENT)


def _wanted(error: OSError, otherwise: int) -> int:
    # Return the poll() event to wait for after an error that means "would block". After any other error, raise
    # ConnectionLost.
    if isinstance(error, BlockingIOError):
        return otherwise
    wanted = _TLS_WANTS.get(type(error).__name__)
    if wanted is None:
        raise connection_fault("the connection broke", error) from error
    return wanted


def connect(address: Address, options: ConnectionOptions) -> Connection:
    """Return a connection to this server, or to the primary that a search finds. Commands on the connection can
    write. Raises ServerError if there is no such connection."""
    try:
        return _connect_to_primary(address, options)
    except ServerError as error:
        if not address.has_other_login(error):
            raise
    return _connect_to_primary(address, options)


def _connect_to_primary(address: Address, options: ConnectionOptions) -> Connection:
    if not address.has_failover:
        return Connection(address, options)
    searching = search(address)
    query = next(searching)
    while True:
        connection, reply = _query(query, options)
        try:
            query = searching.send(reply)
        except StopIteration:  # the last query went to the primary, so keep this connection
            assert connection is not None
            connection.use(options)
            return connection
        except BaseException:
            _close(connection)
            raise
        _close(connection)


def _query(query: Query, options: ConnectionOptions) -> tuple[Connection | None, ReplyOrError]:
    hurried = replace(
        options,
        connect_seconds=min(query.seconds, options.connect_seconds),
        read_seconds=min(query.seconds, options.read_seconds),
    )
    try:
        connection = Connection(query.address, hurried)
    except ServerError as error:
        return None, error
    try:
        return connection, connection.execute(*query.args)
    except ServerError as error:
        return connection, error
    except BaseException:  # `wait` may raise any exception, and the socket must not leak
        connection.close()
        raise


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


def _connect(address: Address, options: ConnectionOptions) -> socket.socket:
    try:
        if address.path:
            return _connect_one(socket.AF_UNIX, address.path, options)
        return _connect_tcp(address, options)
    except OSError as error:
        place = address.path or f"{address.host}:{address.port}"
        raise connection_fault(f"no connection to {place}", error) from error


def _connect_tcp(address: Address, options: ConnectionOptions) -> socket.socket:
    """Connect to the first address of the host that accepts a connection. `connect_seconds` limits the attempt at each
    address, and the TLS handshake.

    It does not limit the lookup of the name, because a resolver cannot be interrupted. A lookup takes as long as
    resolv.conf permits, which is `timeout` times `attempts` times the number of name servers. By default, that is 10 s
    if there is one name server and it does not reply.
    """
    failure: OSError = OSError("the host name has no address")
    for family, _, _, _, place in socket.getaddrinfo(_resolvable(address.host), address.port, type=socket.SOCK_STREAM):
        try:
            made = _connect_one(family, place, options)
        except OSError as error:
            failure = error
            continue
        return _secure(_kept_alive(made), address, options) if address.tls else _kept_alive(made)
    raise failure


def _resolvable(host: str) -> str | bytes:
    # Pass the name as bytes. With a str, even a plain ASCII name would load the IDNA codec, which takes 1.4 MB in each
    # process.
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
    except BaseException:  # `wait` may raise any exception, and the socket must not leak
        made.close()
        raise
    return made


def _finish_connecting(made: socket.socket, code: int, options: ConnectionOptions) -> None:
    if code == errno.EINPROGRESS:
        if not options.wait(made.fileno(), select.POLLOUT, options.connect_seconds):
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {options.connect_seconds:g} s")
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _secure(made: socket.socket, address: Address, options: ConnectionOptions) -> socket.socket:
    try:
        context = tls_context(address.tls_files)
        made = secured = context.wrap_socket(made, server_hostname=address.host, do_handshake_on_connect=False)
        _shake_hands(secured, options)
    except BaseException:  # catch everything, because the socket must not leak
        made.close()
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
                raise NoHandshake(f"no TLS handshake within {options.connect_seconds:g} s") from None
        else:
            return
