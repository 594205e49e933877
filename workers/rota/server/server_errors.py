"""What can go wrong between us and the server, in three kinds, because there are three things to do about it.

* `ConnectionLost`: the connection is of no use any more. Reconnect; what was sent may have been executed.
* `PushedBack`: the server lives and refuses for now. Back off and send the same again.
* `Refused`: the command itself was refused, as by a wrong type, a missing permission or a script error.
"""

from typing import Any, Final, TypeVar

from rota.protocol.command import Command

T = TypeVar("T")

REASON_NETWORK: Final = "network"
REASON_SILENT: Final = "silent"
REASON_PROTOCOL: Final = "protocol"
REASON_SENTINEL: Final = "sentinel"
REASON_CREDENTIALS: Final = "credentials"
REASON_OTHER: Final = "other"

_OF_CONNECTIONS: Final = (REASON_NETWORK, REASON_SILENT, REASON_PROTOCOL, REASON_SENTINEL, REASON_CREDENTIALS)
LOCKED: Final = "NOAUTH Authentication required."
_NOT_LET_IN: Final = ("noauth", "wrongpass")
_FULL: Final = "ERR max number of clients"


class ServerError(Exception):
    """Base of the three kinds. `reason` is one of a few words, fit for a metric's label."""

    def __init__(self, text: str, reason: str = REASON_OTHER) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def refuses_login(self) -> bool:
        """Whether the server did not accept the user and the password that the connection showed."""
        return self.reason in _NOT_LET_IN

    @property
    def is_reply(self) -> bool:
        """Whether the server said it, by which it has not done what it was asked; else it is of the connection."""
        return self.reason not in _OF_CONNECTIONS


class ConnectionLost(ServerError):
    """The connection is gone or must be given up; whether the last command was executed is not known."""


class TlsFault(ConnectionLost):
    """TLS failed by a certificate, its files, or for want of TLS; the text says what to set."""


class TlsFilesFault(TlsFault):
    """A file that redis_tls_ca, redis_tls_cert or redis_tls_key names cannot be used."""


class PushedBack(ServerError):
    """The server refuses for now and did not execute the command."""


class Refused(ServerError):
    """The server refused this command and would refuse it again."""


class UnknownScript(Refused):
    """NOSCRIPT: send the script's text."""


# The first words of error replies, and what to do about them.
_KINDS: Final[dict[str, type[ServerError]]] = {
    # READONLY and MASTERDOWN come from a server that is no primary any more, UNBLOCKED from one that was demoted while
    # a command waited in it, and NOREPLICAS from one that is cut off from its replicas: another may have taken over,
    # and only who connects anew hears of it.
    **dict.fromkeys(("READONLY", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"), ConnectionLost),
    **dict.fromkeys(
        ("OOM", "MISCONF", "LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "NOTREADY", "ROLLBACK"), PushedBack
    ),
    **dict.fromkeys(("NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "MOVED", "ASK", "CROSSSLOT"), Refused),
    "NOSCRIPT": UnknownScript,
}


def wants_password(text: str) -> bool:
    """Whether an error reply says that the server wants a password, and was given none. It says so in its first word,
    or, to a command of more than ten arguments, by its Protocol error."""
    return text.startswith("NOAUTH") or "uthentication required" in text or "unauthenticated" in text


def without_arguments(text: str) -> str:
    """An error reply without the arguments that it repeats: a server that does not know AUTH repeats the password."""
    return text.partition(", with args beginning with")[0]


def first_sentence(reply: str) -> str:
    """Return how a reply begins by which Redis refuses to work: some go on with lines of advice."""
    return reply.split(". ", 1)[0].removesuffix(".")


def error_of_reply(reply: str) -> ServerError:
    """The error that an error reply stands for."""
    text = LOCKED if wants_password(reply) else without_arguments(reply)
    word = text.split(" ", 1)[0]
    if word in _KINDS:
        return _KINDS[word](text, word.lower())
    return PushedBack(text, "maxclients") if text.startswith(_FULL) else Refused(text)


# What a parser raises that meets something else than it was made for.
_UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


def read_reply(call: Command[T], raw: Any) -> T:
    """The parsed answer of a script. Raises Refused for one that no parser can read: whoever answered, it ends no
    process, and whoever may repeat the call does."""
    try:
        return call.parse(raw)
    except _UNREADABLE as error:
        what = f"the answer to {call.script.name} cannot be read: {type(error).__name__}: {error}"
        raise Refused(what, REASON_PROTOCOL) from error
