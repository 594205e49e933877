"""What goes wrong on a client's connections, as its callers are told: what may pass, and what does not."""

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ResponseError,
)

from rota.errors import Unavailable
from rota.server.server_errors import ServerError

_DENIALS: Final = ("noperm", "noauth", "wrongpass")
_REPLIES: Final = (ResponseError, BusyLoadingError, AuthenticationError)
_IN_SCRIPTS: Final = ("ACL failure in script", "The user executing the script can't")  # Valkey and Redis


class Denied(Unavailable):
    """The server does not let this user do it, nor will it until a person changes that: waiting does not help."""


def unavailable(message: str, error: Exception) -> Unavailable:
    """What callers are told in these words, when this is what the server or redis-py said."""
    return Denied(message) if is_denial(error) else Unavailable(message)


def is_denial(error: Exception) -> bool:
    """Whether it is for want of a permission or a password."""
    if isinstance(error, Denied | AuthenticationError | NoPermissionError):
        return True
    if isinstance(error, ServerError) and error.reason in _DENIALS:
        return True
    return any(words in str(error) for words in _IN_SCRIPTS)


def is_refusal(error: Exception) -> bool:
    """Whether the server said it, by which it has not done what it was asked; else it is of the connection."""
    return error.is_reply if isinstance(error, ServerError) else isinstance(error, _REPLIES)


def is_full(error: Exception) -> bool:
    """Whether the server has no memory left."""
    return isinstance(error, OutOfMemoryError) or (isinstance(error, ServerError) and error.reason == "oom")
