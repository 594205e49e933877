"""The errors of connections to the server, and of commands. There are three kinds of errors, which callers handle
differently.

* `ConnectionLost`: the connection can no longer be used. Reconnect. The last command may have been executed.
* `PushedBack`: the server is alive and refuses commands for now. Back off and send the same command again.
* `Refused`: the command itself was refused, for example because a key has the wrong type, a permission is missing, or a
  script failed.
"""

from typing import Any, Final, TypeVar

from rota.protocol.scripts import ScriptCall

T = TypeVar("T")

REASON_NETWORK: Final = "network"
REASON_SILENT: Final = "silent"
REASON_PROTOCOL: Final = "protocol"
REASON_SENTINEL: Final = "sentinel"
REASON_CLUSTER: Final = "cluster"
REASON_MOVED: Final = "moved"
REASON_ASK: Final = "ask"
REASON_TRY_AGAIN: Final = "tryagain"
REASON_CREDENTIALS: Final = "credentials"
REASON_OTHER: Final = "other"

_OF_CONNECTIONS: Final = (
    *(REASON_NETWORK, REASON_SILENT, REASON_PROTOCOL),
    *(REASON_SENTINEL, REASON_CLUSTER, REASON_CREDENTIALS),
)
_REDIRECTIONS: Final = (REASON_MOVED, REASON_ASK, REASON_TRY_AGAIN, "clusterdown")
LOCKED: Final = "NOAUTH Authentication required."
_NOT_LET_IN: Final = ("noauth", "wrongpass")
_FULL: Final = "ERR max number of clients"


class ServerError(Exception):
    """The base class of the three kinds of errors. `reason` is a word from a small set, so it can be the label of a
    metric."""

    def __init__(self, text: str, reason: str = REASON_OTHER) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def refuses_login(self) -> bool:
        """Whether the server refused the user and the password of the connection."""
        return self.reason in _NOT_LET_IN

    @property
    def is_redirection(self) -> bool:
        """Whether a node of a cluster refused the command because another node has the slot, or because the slot is
        being moved. The command was not executed, and will succeed when it is sent again to the right node."""
        return self.reason in _REDIRECTIONS

    @property
    def is_reply(self) -> bool:
        """Whether this error is a reply of the server, so that the command was not executed. Otherwise the connection
        failed."""
        return self.reason not in _OF_CONNECTIONS


class ConnectionLost(ServerError):
    """Raised if the connection was lost or can no longer be used. The last command may or may not have been
    executed."""


class TlsFault(ConnectionLost):
    """Raised if TLS fails because of a certificate or a file, or because the server does not use TLS. The message
    states which setting to change."""


class TlsFilesFault(TlsFault):
    """Raised if a file named by redis_tls_ca, redis_tls_cert or redis_tls_key cannot be used."""


class PushedBack(ServerError):
    """Raised if the server refuses commands for now. The command was not executed."""


class Refused(ServerError):
    """Raised if the server refused this command and would refuse the same command again."""


class UnknownScript(Refused):
    """Raised if the server does not know a script (NOSCRIPT). The caller then sends the script's text."""


# The exception class of an error reply, by the first word of the reply.
_KINDS: Final[dict[str, type[ServerError]]] = {
    # After each of these replies, another server may have taken over, and only a new connection would find that server.
    # READONLY and MASTERDOWN come from a server that is no longer a primary, UNBLOCKED from a server that was demoted
    # while a command was blocked in it, and NOREPLICAS from a server that is cut off from its replicas. MOVED and
    # CLUSTERDOWN come from a node of a cluster that no longer has the slot, or is cut off from the other nodes.
    **dict.fromkeys(("READONLY", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS", "MOVED", "CLUSTERDOWN"), ConnectionLost),
    # ASK and TRYAGAIN come from a node of a cluster while the slot is being moved to another node. Rota never follows
    # ASK, because the other node has only some of the namespace's keys.
    **dict.fromkeys(("OOM", "MISCONF", "LOADING", "BUSY", "ASK", "TRYAGAIN", "NOTREADY", "ROLLBACK"), PushedBack),
    **dict.fromkeys(("NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT"), Refused),
    "NOSCRIPT": UnknownScript,
}


def wants_password(text: str) -> bool:
    """Whether an error reply means that the server requires a password but was given none.

    Such a reply begins with NOAUTH. If the command had more than ten arguments, the reply is a protocol error instead,
    for example `Protocol error: unauthenticated multibulk length`.
    """
    return text.startswith("NOAUTH") or "uthentication required" in text or "unauthenticated" in text


def without_arguments(text: str) -> str:
    """Return an error reply without the arguments that it repeats. A server that does not have the command AUTH repeats
    its arguments, which include the password."""
    return text.partition(", with args beginning with")[0]


def first_sentence(reply: str) -> str:
    """Return the first sentence of an error reply, because some replies of Redis continue with advice."""
    return reply.split(". ", 1)[0].removesuffix(".")


def error_of_reply(reply: str) -> ServerError:
    """Return the exception for an error reply."""
    text = LOCKED if wants_password(reply) else without_arguments(reply)
    word = text.split(" ", 1)[0]
    if word in _KINDS:
        return _KINDS[word](text, word.lower())
    return PushedBack(text, "maxclients") if text.startswith(_FULL) else Refused(text)


# The exceptions that a parser may raise if the reply does not have the expected form.
_UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


def read_reply(call: ScriptCall[T], raw: Any) -> T:
    """Parse the reply of a script. If the parser cannot read it, this raises Refused, because an exception of another
    type would end the process. Callers then repeat the call if that is safe."""
    try:
        return call.parse(raw)
    except _UNREADABLE as error:
        what = f"the reply to {call.script.name} cannot be read: {type(error).__name__}: {error}"
        raise Refused(what, REASON_PROTOCOL) from error
