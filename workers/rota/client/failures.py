"""What goes wrong on a client's connections, as its callers are told: what may pass, and what does not."""

from typing import Final

from rota.errors import Unavailable
from rota.server.server_errors import ServerError

_DENIALS: Final = ("noperm", "noauth", "wrongpass")
_IN_SCRIPTS: Final = ("ACL failure in script", "The user executing the script can't")  # Valkey and Redis


class Denied(Unavailable):
    """The server does not let this user do it, nor will it until a person changes that: waiting does not help."""


def unavailable(message: str, error: Exception) -> Unavailable:
    """What callers are told in these words, when this is what went wrong."""
    return Denied(message) if is_denial(error) else Unavailable(message)


def is_denial(error: Exception) -> bool:
    """Whether it is for want of a permission or a password."""
    if isinstance(error, Denied) or (isinstance(error, ServerError) and error.reason in _DENIALS):
        return True
    return any(words in str(error) for words in _IN_SCRIPTS)
