"""What is said on a connection to the server, and what its answers mean: without reading or writing.

The blocking connection and that of asyncio both drive this, and differ only in how bytes go and come.

1. Each says first who it is: `greeting`.
2. It hands over what it read, and takes out the replies. An error reply is raised, as what there is to do about it.
3. It repeats nothing behind its caller's back: a claim sent twice by a helpful client is a task held by nobody. The one
   exception is NOSCRIPT (`UnknownScript`), which says that nothing was executed: then the script goes out as text.
"""

from typing import TYPE_CHECKING, Any, Final

from rota.protocol.wire import Arg, command, pack
from rota.server.address import Address
from rota.server.server_errors import REASON_NETWORK, REASON_PROTOCOL, ConnectionLost, ServerError, error_of_reply

if TYPE_CHECKING:
    from ssl import SSLContext

try:
    from hiredis import ProtocolError, PushNotification, Reader
except ModuleNotFoundError:  # beside an application that only enqueues: see docs/install.md
    from rota.server.replies_reader import ProtocolError, PushNotification, Reader  # type: ignore[assignment]

NO_REPLY: Final = object()
PushMessage: Final = PushNotification
"""What the server sends a connection of RESP3 that nothing asked for."""
READ_BYTES: Final = 1 << 16


class Session:
    """The replies of one connection."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = Reader(replyError=error_of_reply, notEnoughData=NO_REPLY)

    def take(self, data: bytes) -> None:
        """Take what was read. Raises ConnectionLost when that is the end."""
        if not data:
            raise ConnectionLost("the server closed the connection", REASON_NETWORK)
        self._reader.feed(data)

    def reply(self) -> Any:
        """The next reply if it has come whole, else NO_REPLY. Raises ServerError: error replies too."""
        try:
            reply = self._reader.gets()
        except ProtocolError as error:
            raise ConnectionLost(f"the server answered something that is not RESP: {error}", REASON_PROTOCOL) from error
        if isinstance(reply, ServerError):
            raise reply
        return reply


def greeting(address: Address, name: str) -> list[bytes]:
    """The commands with which a connection begins. The last may be refused: it is the name, for people who read CLIENT
    LIST, and an ACL or a proxy may not have it."""
    first: list[tuple[Arg, ...]] = []
    if address.username or address.password:
        first.append(("AUTH", address.username or "default", address.password))
    if address.database:
        first.append(("SELECT", address.database))
    return [command((pack(args),)) for args in (*first, ("CLIENT", "SETNAME", name))]


def tls_context() -> "SSLContext":
    """TLS as all connections have it: the system's authorities, and the name checked."""
    import ssl  # noqa: PLC0415 - 2 MB that only TLS needs

    return ssl.create_default_context()
