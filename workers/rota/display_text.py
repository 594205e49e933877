"""Text from outside as it may be shown: without secrets (`redact`), and without control characters (`printable`).

`redact` shows of a value that can hold a secret nothing but what cannot be part of one.

Whoever mistypes a URL puts the password anywhere: for the port, the database or an option, before the `@` or without
one, under another key. So a URL is shown by what is recognized in it, from left to right, and ends in `***` with the
first thing that is not; nothing is hidden because it looks like a secret.

`printable` escapes what `str.isprintable` says no to: control characters, those that set the direction of writing,
separators of lines and paragraphs, halves of surrogate pairs, invisible and unassigned ones, and blanks other than the
space. So nothing in a text moves a cursor, rings a bell, colors a terminal, hides, or puts what stands beside it into
another order. They are spelled as in JSON (`\\u001b`, `\\n`), so that a JSON document stays one, of the same data.
"""

import re
from json.encoder import encode_basestring_ascii
from typing import Final

HIDDEN: Final = "***"
# The options of well-known clients, by which somebody may know what was meant. What else stands in the place of one may
# be the rest of a password with a ? or a & in it.
OPTIONS: Final = frozenset(
    {
        *("client_name", "db", "decode_responses", "encoding", "encoding_errors", "health_check_interval"),
        *("max_connections", "password", "protocol", "retry_on_error", "retry_on_timeout"),
        *("sentinel_password", "sentinel_username", "socket_connect_timeout", "socket_keepalive", "socket_timeout"),
        *("ssl", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile"),
        *("ssl_check_hostname", "ssl_keyfile", "timeout", "username"),
    }
)
_SCHEME: Final = re.compile(r"([a-z][a-z+.-]{1,20})://", re.IGNORECASE)
_USER: Final = re.compile(r"[\w.-]*")
_PLACE: Final = r"(?:[\w.-]+|\[[0-9a-f:.%]+\])(?::[0-9]{1,5})?(?=[:/?#,]|\Z)"
_DATABASE: Final = r"/(?:[0-9]{1,5}(?=[?#]|\Z))?"
_OPTIONS: Final = rf"(?:\?(?:db=[0-9]{{1,5}}(?:&|\Z))*(?:(?:{'|'.join(sorted(OPTIONS))})=)?)?"
# What follows the credentials, by kind of URL: as far as it is understood.
_ONE_SERVER: Final = re.compile(rf"(?:{_PLACE})?(?:{_DATABASE})?{_OPTIONS}:?", re.IGNORECASE)
_SENTINELS: Final = re.compile(
    rf"(?:{_PLACE}(?:,{_PLACE})*(?:/[\w.-]*(?=[/?#]|\Z))?(?:{_DATABASE})?{_OPTIONS})?[:,]?", re.IGNORECASE
)
_SOCKET: Final = re.compile(rf"(?:/[^?#]*{_OPTIONS})?")
_REST: Final = {
    "redis": _ONE_SERVER,
    "rediss": _ONE_SERVER,
    "redis+sentinel": _SENTINELS,
    "rediss+sentinel": _SENTINELS,
    "unix": _SOCKET,
}
# A URL without its "://": a scheme, and this machine, its port and a database.
_NEARLY: Final = re.compile(
    r"(?:(?:rediss?|valkeys?|unix)(?::/?|//))?"
    r"(?:(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?(?=/|\Z)(?:/[0-9]{1,2}\Z)?)?",
    re.IGNORECASE,
)
_NOTHING: Final = re.compile("")
_PAIR: Final = re.compile(r"@|:(?![0-9]{1,5}\Z)")
_CREDENTIALS: Final = re.compile(r"://|//.*@|\A[^/]*:.*@", re.DOTALL)


def redact(url: str) -> str:
    """The URL with `***` in the place of its password, of the values of its options, and of all that is no part of a
    Redis URL: fit for logs and messages."""
    found = _SCHEME.match(url)
    if found is None:
        return _without_scheme(url)
    after = url[found.end() :]
    credentials, at, rest = ("", "", after) if after.startswith("/") else after.rpartition("@")
    if set("/?#") & set(credentials):  # this @ may be of a password that comes later
        return found[0] + HIDDEN
    known = _REST.get(found[1].lower(), _NOTHING).match(rest)
    assert known is not None
    return found[0] + _credentials(credentials) + at + known[0] + HIDDEN * (known.end() < len(rest))


def _without_scheme(text: str) -> str:
    """What is recognized of a URL without `://`, as `localhost:6379`, and `***` for the rest."""
    known = _NEARLY.match(text)
    if not (known and known[0]) or "@" in text:
        return HIDDEN
    return known[0] + HIDDEN * (known.end() < len(text))


def _credentials(text: str) -> str:
    user, colon, password = text.partition(":")
    if not text or (password and _USER.fullmatch(user)):
        return f"{user}{colon}{HIDDEN}" if text else ""
    return HIDDEN  # without a password: a colon was forgotten, or stands on its wrong side


def may_hold_credentials(text: str) -> bool:
    """Whether a value that should be no URL may be one, or `user:password@host`."""
    return _CREDENTIALS.search(text) is not None


def quoted(text: str) -> str:
    """A text between quotes, or `***` when it may hold a secret: with an '@', or a ':' that stands before no port."""
    return HIDDEN if _PAIR.search(text) else f'"{text}"'


_NO_PLAIN_ASCII: Final = re.compile(r"[^ -~]")
_DELETE: Final = "\x7f"  # the only one of ASCII that JSON does not escape


def printable(text: str) -> str:
    """The text on one line, with everything escaped that is more or less than a letter, a sign or a space."""
    return text if text.isprintable() else _NO_PLAIN_ASCII.sub(_spelled, text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, which it keeps."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """The same for a JSON document on one line, in which JSON has escaped what there was of ASCII: 0.1 us for one of
    600 characters that are all ASCII, where `printable` takes 5."""
    return document if document.isascii() and _DELETE not in document else printable(document)


def _spelled(found: re.Match[str]) -> str:
    letter = found[0]
    return letter if letter.isprintable() else encode_basestring_ascii(letter)[1:-1]
