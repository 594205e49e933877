"""The commands and replies on a connection to the server. This module does no I/O.

The blocking and the asyncio connection both use this module, and differ only in how they read and write bytes.

1. Each connection first sends its `greeting`.
2. The connection passes the bytes that it reads to a `Session`, which returns the replies. An error reply is raised as
   an exception, and the class of the exception determines how callers handle it.
3. A connection never repeats a command on its own. If it sent a claim twice, no worker would know about the tasks of
   one of the two claims. The only exception is NOSCRIPT (`UnknownScript`), which means that nothing was executed. In
   this case the connection sends the script as text.

An enqueue may also wait for a replica or for the disk (`Confirmation`). docs/reliability.md describes what each
durability level guarantees. The command that waits is WAIT or WAITAOF. It is sent after the scripts, in the same round
trip, and on the same connection, because it covers only the writes of its own connection.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from rota.protocol.wire import Arg, command, pack
from rota.server.address import Address, TlsFiles
from rota.server.logins import Login
from rota.server.server_errors import (
    REASON_NETWORK,
    REASON_PROTOCOL,
    ConnectionLost,
    ServerError,
    TlsFault,
    TlsFilesFault,
    error_of_reply,
)

if TYPE_CHECKING:
    from ssl import SSLContext

try:
    from hiredis import ProtocolError, PushNotification, Reader
except ModuleNotFoundError:  # an application that only enqueues need not have hiredis: see docs/install.md
    from rota.server.replies_reader import ProtocolError, PushNotification, Reader  # type: ignore[assignment]

NO_REPLY: Final = object()
PushMessage: Final = PushNotification
"""A message that the server sends unrequested on a RESP3 connection."""
READ_BYTES: Final = 1 << 16


class Session:
    """The parser of the replies that arrive on one connection."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = Reader(replyError=error_of_reply, notEnoughData=NO_REPLY)

    def take(self, data: bytes) -> None:
        """Add bytes that were read from the connection. Raises ConnectionLost if `data` is empty, because the
        connection has then ended."""
        if not data:
            raise ConnectionLost("the server closed the connection", REASON_NETWORK)
        self._reader.feed(data)

    def reply(self) -> Any:
        """Return the next reply if all of it has arrived, or else NO_REPLY. Raises ServerError if the data is not RESP
        or the reply is an error."""
        try:
            reply = self._reader.gets()
        except ProtocolError as error:
            raise ConnectionLost(f"the server sent data that is not RESP: {error}", REASON_PROTOCOL) from error
        if isinstance(reply, ServerError):
            raise reply
        return reply


def greeting(address: Address, login: Login, name: str) -> list[bytes]:
    """Return the commands with which a connection begins. The last one sets the name that CLIENT LIST shows. The server
    may refuse that last command, because an ACL or a proxy may forbid it."""
    first: list[tuple[Arg, ...]] = []
    if login.user or login.password:
        first.append(("AUTH", login.user or "default", login.password))
    if address.database:
        first.append(("SELECT", address.database))
    return [command((pack(args),)) for args in (*first, ("CLIENT", "SETNAME", name))]


def tls_context(files: TlsFiles) -> "SSLContext":
    """Return the TLS context of all connections. It checks the host name. It trusts the authorities in the file
    `files.ca`, or those that the system trusts if there is no such file. The files are read now. Raises TlsFault if a
    file cannot be used."""
    import ssl  # noqa: PLC0415 - 2 MB that only TLS needs

    named = f"redis_tls_ca: {files.ca}"
    content = "a certificate in PEM format"
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
        if files.cert:
            named = f"redis_tls_cert, redis_tls_key: {files.cert} and {files.key}"
            content = "a certificate and its key in PEM format"
            # Without a password function, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(files.cert, files.key, password=lambda: b"")
    except ssl.SSLError as error:
        raise TlsFilesFault(f"{named}: expected {content}, without a passphrase", REASON_NETWORK) from error
    except OSError as error:
        raise TlsFilesFault(f"{named}: cannot be read: {error.strerror}", REASON_NETWORK) from error
    return context


class NoHandshake(TimeoutError):
    """Raised if the other side accepted the connection but did not reply to the TLS handshake."""


def connection_fault(what: str, error: OSError) -> ConnectionLost:
    """Return the error for a connection that failed. If TLS failed, the message states which setting to change."""
    fault = _tls_fault(error)
    kind = TlsFault if fault else ConnectionLost
    return kind(f"{what}: {fault or error.strerror or error}", REASON_NETWORK)


def greeting_fault(error: ConnectionLost, address: Address) -> ConnectionLost:
    """Return the error for a connection that ended before the greeting was complete. With TLS 1.3, a server that
    requires a client certificate but gets none ends the connection only at this point. Its alert may be lost, so the
    message mentions this possible cause."""
    if not address.tls or address.tls_files.cert or error.reason != REASON_NETWORK or isinstance(error, TlsFault):
        return error
    return TlsFault(f"{error}: if the server requires a client certificate, {_NAME_OURS}", REASON_NETWORK)


# The advice for certain verify codes of OpenSSL. Every other code means that the authority is not trusted.
_EXPIRED: Final = 10
_OTHER_NAME: Final = {62, 64}
_WANTS_OURS: Final = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
)
_NAME_OURS: Final = "set redis_tls_cert and redis_tls_key to a client certificate that the server trusts, and its key"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def _tls_fault(error: OSError) -> str:
    """Return a text that states what went wrong in TLS and which setting to change. For an error of another kind,
    return "". TLS errors are recognised by their attributes, because ssl may not be loaded."""
    if message := getattr(error, "verify_message", ""):
        return f"the server's certificate is not accepted ({message}): {_what_to_set(getattr(error, 'verify_code', 0))}"
    if isinstance(error, NoHandshake):
        return f"{error}: if the server does not use TLS, begin redis_url with redis://"
    reason = getattr(error, "reason", None) or ""
    if reason.endswith(_WANTS_OURS):
        return f"the server requires a client certificate, or does not accept this one ({reason}): {_NAME_OURS}"
    return f"the server does not use TLS ({reason}): begin redis_url with redis://" if reason in _NO_TLS else ""


def _what_to_set(verify_code: int) -> str:
    if verify_code == _EXPIRED:
        return "renew the certificate, or check the clocks of both machines"
    if verify_code in _OTHER_NAME:
        return "use a host name in redis_url that the certificate is valid for"
    return "set redis_tls_ca (ROTA_REDIS_TLS_CA) to a file with the certificate of the authority that issued it"


Durability = Literal["none", "wait", "waitaof"]
# The server may wait for this share of the time in which its reply must arrive. The rest is needed because the server
# checks its timers only every 0.1 s.
_WAITING_SHARE: Final = 0.75
_NO_MATTER_SECONDS: Final = 0.01


def level_of(text: str) -> Durability:
    """Return the durability level with this name. If there is no such level, raises ValueError with the names of all
    levels."""
    if text not in get_args(Durability):
        expected = ", ".join(f'"{level}"' for level in get_args(Durability))
        raise ValueError(f"durability: expected one of {expected}, got {text!r}")
    return cast("Durability", text)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmation that a client requests after it has sent enqueues."""

    durability: Durability
    replicas: int  # number of replicas that must confirm
    seconds: float  # how long the server may wait for the confirmation

    @property
    def waiting(self) -> bytes:
        """The command that waits for the confirmation, in wire form. It is sent after the scripts."""
        # A timeout of 0 would make the server wait forever.
        return self._command(max(1, round(self.seconds * 1000)))

    @property
    def trial(self) -> bytes:
        """A command that tests whether the server can confirm writes at all. If the connection has written nothing yet,
        the server replies at once: with an error if it can never confirm writes."""
        return self._command(1)

    def within(self, seconds: float) -> "Confirmation":
        """Return this confirmation with a shorter wait, so that the reply comes in time if only `seconds` are left."""
        share = round(seconds * _WAITING_SHARE, 3)
        return self if self.seconds - share < _NO_MATTER_SECONDS else replace(self, seconds=share)

    def lack(self, reply: Any) -> str:
        """Return a text that states which confirmation is missing in the server's reply, or "" if none is."""
        on_disk, replicas = (1, reply) if self.durability == "wait" else reply
        missing = []
        if not on_disk:
            missing.append("the server has not written the tasks to its disk")
        if replicas < self.replicas:
            missing.append(f"no replica has {'the tasks' if self.durability == 'wait' else 'the tasks on its disk'}")
        return " and ".join(missing)

    def _command(self, milliseconds: int) -> bytes:
        words = ("WAIT",) if self.durability == "wait" else ("WAITAOF", 1)
        return command((pack((*words, self.replicas, milliseconds)),))


def confirmation(durability: Durability, *, failover: bool, timeout_seconds: float) -> Confirmation | None:
    """Return the confirmation to request for this durability level, or None if the server's reply to the enqueue is
    enough. `failover` states whether another server may take over."""
    if durability == "none":
        return None
    replicas = 1 if durability == "wait" or failover else 0
    return Confirmation(durability, replicas, timeout_seconds * _WAITING_SHARE)
